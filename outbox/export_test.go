package outbox

// The statements, for the tests of their plans.
const (
	Settings  = settings
	TakeSQL   = takeSQL
	MarkSQL   = markSQL
	DeleteSQL = deleteSQL
)
