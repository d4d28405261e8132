package main

import "testing"

func TestStream(t *testing.T) {
	c := runLab(t, "stream")
	for _, how := range []string{"restart, same name, reads 0", "never back, others claim"} {
		c.want(t, how, "workers killed", 20)
		c.want(t, how, "done", jobs)
		c.want(t, how, "lost", 0)
	}
}
