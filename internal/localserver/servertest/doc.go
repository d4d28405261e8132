// Package servertest gives tests real servers: a Redis of their own, and a database of their own in one Postgres that all
// tests of a package share. A package that uses Database has
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// The shared Postgres is started with the first Database and forgets its data (no fsync). The services' roles are there, but without their
// CONNECTION LIMIT: it holds for the whole server, and parallel tests share that.
package servertest
