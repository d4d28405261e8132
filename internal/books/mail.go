package books

import (
	"context"
	"time"
)

// clockMargin is how far the clocks of Redis and of who makes event ids may be apart.
const clockMargin = time.Minute

const mailNote = "a mail that went out twice cannot be seen here, only at the mail server: both have one Message-ID"

// The mailer's only book is its marker, which is in Redis and ends after PROCESSED_RETENTION. Without a marker the mail may
// have been sent long ago, or before Redis lost its data. The stream is in the same Redis: from its oldest entry on nothing was
// lost, since ids follow the clock. So an event whose entry was added since then, and which has no marker, was not marked
// as sent: that is lost. Of any other nobody knows, nor of one whose marker may have ended, though the stream goes back
// further: it may not have been trimmed, and an entry that was deleted by hand lets it seem to go back for ever.

// untold reports that nothing in Redis goes back far enough to tell whether the order's mail was sent.
func (p *places) untold(o order) bool {
	if o.sending() {
		return false
	}
	from, any := p.keptSince()
	switch {
	case o.entry != "":
		e := parseEntryID(o.entry)
		if e.after(parseEntryID(p.info.lastGenerated)) {
			return false // it came after our look at the stream, or Redis was set back: judgeMail asks that
		}
		return !any || from.after(e)
	case o.row:
		return false // it was not published when its row was read: look again
	default:
		return o.made.IsZero() || !any || o.made.Before(from.time().Add(clockMargin))
	}
}

// keptSince is the oldest id that the stream shows to have had: an entry, or one that was deleted by hand.
func (p *places) keptSince() (id entryID, ok bool) {
	deleted := parseEntryID(p.info.maxDeleted)
	switch {
	case p.first == "":
		return deleted, deleted != entryID{}
	case deleted != entryID{} && parseEntryID(p.first).after(deleted):
		return deleted, true
	}
	return parseEntryID(p.first), true
}

// judgeMail says of each suspect of the mailer what it is.
func (r *reading) judgeMail(context.Context) error {
	g := r.groups[0]
	last := parseEntryID(r.info.lastGenerated)
	for id, o := range r.suspects[0] {
		switch {
		case o.sending():
			g.InDoubt++
			add(&g.InDoubtSample, o.item(o.mail+", which is not under way"))
		case o.mail != "":
			g.InDoubt++
			add(&g.InDoubtSample, o.item("its marker is nothing that the mailer writes"))
		case r.sums.after.mailForgotten(o): // it was not when the reading began
			g.Unknown++
		case r.events[id].at[0] == acked:
			g.Lost++
			add(&g.LostIDs, o.item("acknowledged, and not marked as sent"))
		case o.entry != "" && parseEntryID(o.entry).after(last): // Redis was set back
			g.Unknown++
		default:
			g.Lost++
			add(&g.LostIDs, o.item(nowhereNote(o)))
		}
	}
	g.Notes = append(g.Notes, mailNote)
	if g.Unknown > 0 {
		g.Notes = append(g.Notes, "unknown: no marker, and the stream does not reach back far enough to tell. Markers end after "+
			"PROCESSED_RETENTION, and go where Redis loses its data")
	}
	return nil
}

// nowhereNote says where a lost order was last.
func nowhereNote(o order) string {
	switch {
	case o.entry != "":
		return "published as entry " + o.entry + ", which is nowhere now"
	case o.row:
		return "its outbox row is there, and it is not in the stream"
	}
	return "neither in the outbox nor in the stream"
}
