// Command labs shows on a real Redis, with real worker processes and real kill -9, what queues do and what they lose.
//
//	go run ./labs                 list the labs
//	go run ./labs list-loss       run one
//	go run ./labs -h              all settings
//
// Each lab is a file to read beside its page in docs/labs: first a few commands by hand, then a program that does the same
// a thousand times and counts. What is counted is read from the server afterwards; no worker reports about itself.
//
// A worker is this same program, started again by the lab. Code that fails calls check, which ends the lab or the worker with the
// error: so the code to read stays short.
//
//	main.go     arguments, the list
//	lab.go      what a lab is, all labs
//	session.go  one run: its servers, its keys, their removal
//	postgres.go the same for Postgres
//	show.go     what is printed: steps, commands with their replies, tables, progress
//	reply.go    commands and replies as redis-cli prints them
//	worker.go   the worker's side
//	fleet.go    the lab's side: starting workers and killing them
//	consume.go  how workers take jobs and entries: what several labs share
//
// and a file for each lab.
package main
