package main

import "testing"

func TestListLoss(t *testing.T) {
	c := runLab(t, "list-loss")
	careful := "deploy, a worker finishes its job"
	for _, how := range []string{"kill -9", "deploy, SIGTERM ends a worker"} {
		c.wantSome(t, how, "lost")
		if lost, ended := c.number(t, how, "lost"), c.number(t, how, "workers ended"); lost > ended {
			t.Errorf("%s: %d lost by %d workers, of which each has one job at a time", how, lost, ended)
		}
		c.wantSum(t, how, jobs, "done", "lost")
	}
	c.want(t, careful, "lost", 0)
	c.want(t, careful, "done", jobs)
}
