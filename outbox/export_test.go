package outbox

// DeleteSQL is for a test of its plan.
const DeleteSQL = deleteSQL
