// Package localserver runs real redis-server and postgres processes on this machine, each on a port and in a directory
// of its own, for the tests and for `fanout up`. The servers can be killed, frozen and started again on the same
// port with the same data.
//
// A server listens on 127.0.0.1 only. It does not see the terminal's Ctrl-C (it has a process group of its own), and on
// Linux it ends with the program that started it, even when that one is killed. Where the program runs as root, postgres,
// which refuses to, runs as the user postgres or nobody.
//
//	redis.go         StartRedis, Redis
//	postgres.go      StartPostgres, Postgres
//	initdb.go        the making of a new Postgres cluster, and the user it runs as
//	process.go       Process, one child: start, signal, wait, its last lines
//	start.go         waiting for a server, URLs
//	port.go          free ports
//	binary.go        where the servers' programs are found
//	process_linux.go what only Linux can do; process_other.go is for the rest
package localserver
