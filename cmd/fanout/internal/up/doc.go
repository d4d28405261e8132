// Package up runs the whole system on this machine without Docker: real redis-server and postgres as child processes, the
// four services as four processes, and a mailbox that keeps each mail as a file.
//
//	up.go        Run: what is started, and in which order it stops
//	config.go    Config
//	state.go     .fanout: its lock, its password, where Postgres's data lie
//	servers.go   Redis, Postgres, the schema and the mailbox
//	service.go   one service: start, start again, drain
//	build.go     the services' programs and their environment
//	logs.go      the services' lines with their names in front
//	table.go     what is printed at the start
package up
