package processed

import _ "embed"

// Schema makes the table and the index that this package needs, in the first schema of the search_path: for a migration of your own. It
// is several statements, for a connection's Exec without parameters.
//
//go:embed schema.sql
var Schema string
