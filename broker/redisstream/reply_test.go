package redisstream

import (
	"reflect"
	"strings"
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

// FuzzParseEntries: whatever bytes come, the parser ends without a panic and takes no more memory than they are worth; what it takes
// as an entry has an id and pairs that stood in the reply.
func FuzzParseEntries(f *testing.F) {
	good := "*1\r\n*2\r\n$6\r\norders\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*4\r\n$2\r\nid\r\n$1\r\na\r\n$4\r\ntype\r\n$1\r\nt\r\n"
	for _, raw := range []string{good, "*-1\r\n", "_\r\n", "-NOGROUP no such key\r\n", "", "*1\r\n", good[:len(good)-3],
		strings.Replace(good, "*4", "*3", 1), strings.Replace(good, "$3", "$9", 1), "*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		entries, err := parseEntries(raw)
		if err != nil {
			return
		}
		size := 0
		for _, e := range entries {
			size += len(e.EntryID)
			fields := e.fields()
			for _, field := range fields {
				size += len(field)
			}
			if (e.ID == "" || e.Type == "" || len(fields)%2 != 0) != (e.bury != nil) {
				t.Errorf("%q: malformed and not, or the other way round", fields)
			}
			if again := newEntry(e.EntryID, pack(fields...)); !reflect.DeepEqual(again.Event, e.Event) || (again.bury == nil) != (e.bury == nil) {
				t.Errorf("%q: read as %+v, taken over as %+v", fields, e.Event, again.Event)
			}
		}
		if size > len(raw) {
			t.Errorf("%d bytes from a reply of %d", size, len(raw))
		}
	})
}
