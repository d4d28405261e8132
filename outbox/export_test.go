package outbox

// The statements, for the tests of their plans.
var (
	Settings  = settings
	TakeSQL   = takeSQL
	MarkSQL   = markSQL
	ReadSQL   = readSQL
	DeleteSQL = deleteSQL
)

// LateIDs is for the test that counts reads.
const LateIDs = lateIDs
