package processed

// PruneSQL is for a test of its plan.
const PruneSQL = pruneSQL
