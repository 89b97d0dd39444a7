package mongo

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// mark is the place of one entry of the log, see core.Mark.
type mark struct {
	pos core.Position
	// committed tells that the time of pos is that of the event's commit: a stream
	// read it. A scan's is the time of its snapshot, a poll's a running number.
	committed bool
	// id is the document's _id with its BSON type; zero for a place between
	// documents.
	id bson.RawValue
	// event is the event's id where that is not the document's _id.
	event string
	// token is the resume token of the change event; nil when a scan or a poll
	// read the document.
	token bson.Raw
	// scan is the progress of the scan that read the document; nil outside one.
	scan *scanState
	// raw is the stored document, kept only when it can't be decoded.
	raw bson.Raw
}

func (m *mark) Position() core.Position { return m.pos }

// cursorDoc is the stored form of a cursor, collection <log>_cursors.
type cursorDoc struct {
	Name  string `bson:"_id"`
	Owner string `bson:"owner"`
	// Sink is where the holder sends the cursor's events, if it told.
	Sink string `bson:"sink,omitempty"`
	// Term is unique per acquisition: it tells the holder that it is one.
	Term       string         `bson:"term"`
	Fence      bson.Timestamp `bson:"fence"`
	LeaseUntil bson.DateTime  `bson:"lease_until"`
	// Revision rises with every write of a holder, so that a standby sees
	// whether the cursor is alive without comparing clocks.
	Revision int64 `bson:"revision"`
	// From is where the cursor began, if not at the beginning of the log: a
	// scan or a poll reads nothing that was written before it.
	From bson.Timestamp `bson:"from,omitempty"`
	// Pass is the time of a start from now on a replica set that is polled: what
	// the log held then is still to be marked as passed over.
	Pass bson.Timestamp `bson:"pass,omitempty"`
	// Token is where the change stream goes on; nil before the first save from
	// a stream, and while a scan runs.
	Token    bson.Raw       `bson:"token,omitempty"`
	Position storedPosition `bson:"position"`
	// Scan is there while a scan runs.
	Scan *scanState `bson:"scan,omitempty"`
	// Fruitless counts the terms since the position last moved.
	Fruitless int          `bson:"fruitless"`
	Suspect   *suspectNote `bson:"suspect,omitempty"`
	// Settled counts the entries that were settled, ever.
	Settled int64 `bson:"settled"`
}

// storedPosition is a core.Position: the cluster time of the change event (or
// of the snapshot that a scan read in), and a running number within it.
type storedPosition struct {
	Time    bson.Timestamp `bson:"time"`
	Ordinal int64          `bson:"ordinal"`
}

// scanState is how far a scan has come, so that one that was cut short goes on.
type scanState struct {
	// At is the time of the scan's first snapshot.
	At bson.Timestamp `bson:"at"`
	// From is the lowest seq that the scan reads, however often it starts anew:
	// zero for a scan of the whole log.
	From bson.Timestamp `bson:"from,omitempty"`
	// Seq is that of the last entry before the first unsettled one.
	Seq bson.Timestamp `bson:"seq"`
	// OccurredAt and ID are those of the last settled entry among the foreign
	// documents, which have no seq; zero while the scan is not among them.
	OccurredAt bson.RawValue `bson:"occurred_at,omitempty"`
	ID         bson.RawValue `bson:"id,omitempty"`
	// First marks the first scan of a new cursor.
	First bool `bson:"first,omitempty"`
	// Published: the first scan also reads events marked as published.
	Published bool `bson:"published,omitempty"`
}

// suspectNote names the event that was about to be sent alone when a term ended
// without progress.
type suspectNote struct {
	// Event is the event's id where that is not the document's _id.
	Event string        `bson:"event,omitempty"`
	ID    bson.RawValue `bson:"id"`
	Count int           `bson:"count"`
}
