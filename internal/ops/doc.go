// Package ops is what every service has around its work: start and stop, settings, logs, health, metrics, traces.
//
// A role per file:
//
//	main.go     Main: signals, exit code, the healthcheck argument
//	config.go   Config, which every service reads
//	consumer.go the settings of a consumer, and the retention contract
//	service.go  Service: New, Close, the logger
//	server.go   Router and Serve
//	health.go   /healthz and /readyz
//	redis.go    CheckRedis: may this Redis hold the stream?
//	metrics.go  counters and histograms
//	watch.go    WatchGroup: what Redis says about a group, at scrape time
//	trace.go    spans for requests and deliveries
//	token.go    API_TOKEN
package ops
