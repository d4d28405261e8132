// Package migrations is the database's schema: numbered pairs of SQL files, and the roles of the services.
//
// Apply brings a database up to date, once, also where several programs start at the same time; Check tells a service
// whether that has happened. Each file runs in one transaction of its own, so it is done as a whole or not
// at all; a file that needs to be outside of one (CREATE INDEX CONCURRENTLY) must hold that statement only.
//
// A new version must let the services of the version before go on working, because during an update both run: add first,
// remove a release later. So Check is content with a schema that is newer than the program, and Apply, which
// could do nothing with it, refuses it.
//
//	apply.go    Apply and its lock
//	check.go    Check, Latest
//	roles.sql   the roles, run by every Apply
//	cmd/        the program that compose runs once
package migrations
