package main

// markerKey is where the mailer notes what became of an event's mail: "sending <entry id>" or "sent".
func markerKey(eventID string) string { return "mailer:sent:" + eventID }
