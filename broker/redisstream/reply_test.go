package redisstream

import (
	"testing"
)

func TestAbsurdReplies(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"*1\r\n*2\r\n$1\r\na\r\n*9223372036854775807\r\n",
		"*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*9223372036854775807\r\n",
		"*1\r\n*2\r\n$9223372036854775806\r\na\r\n",
	} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%q: panic %v", raw, p)
				}
			}()
			_, _ = parseEntries(raw)
		}()
	}
}
