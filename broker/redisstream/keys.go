package redisstream

// Every key and connection name of the engine is built here. The braces put a stream's keys in one slot of a Redis
// cluster (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags).

// DeadKey is the stream that holds the dead letters of a group.
func DeadKey(stream, group string) string { return "{" + stream + "}:dead:" + group }

// failKey is the hash that holds, by entry id, "failures:next try" of a group's failed entries; the next try is in
// milliseconds since 1970 on the server's clock.
func failKey(stream, group string) string { return "{" + stream + "}:fail:" + group }

// connName is what a consumer's connections are called in CLIENT LIST: it shows who holds a consumer's name.
func connName(group, consumer string) string { return group + ":" + consumer }
