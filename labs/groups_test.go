package main

import "testing"

func TestGroups(t *testing.T) {
	c := runLab(t, "groups")
	for _, done := range []string{"mails", "bonuses"} {
		c.want(t, "a group each", done, jobs)
	}
	for _, missing := range []string{"without a mail", "without a bonus"} {
		c.want(t, "a group each", missing, 0)
		c.wantSome(t, "one group for both", missing)
	}
	c.wantSum(t, "one group for both", jobs, "mails", "bonuses")
}
