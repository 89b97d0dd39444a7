package relay

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// line is what a term knows of a key whose events go through the queue: it has
// open jobs, or its events are being parked. While a key has a line none of its
// events is sent directly, and those that are read go to the line's end.
type line struct {
	key  *key
	jobs []*job // open ones, by position
	// pending are the positions of events that are being parked, in order: they
	// count from before the write on, so that the key isn't released meanwhile.
	pending []core.Position
	// away is how many of the jobs are lent to somebody else, or may be. They
	// block the key, also where they are not its head.
	away int
	// busy: jobs of it are being claimed, delivered or settled.
	busy    bool
	crowded bool // more open jobs than a key may have
	due     time.Time
	place   int // in the heap of lines that have something to do, -1 when not there
}

// job is an open job of the cursor.
type job struct {
	tries
	key       *key
	open      core.OpenJob
	due       time.Time
	kind      string // type of its event, where this term saw it
	reason    string // of its last failure
	postponed int    // how often it waited without a counted attempt
	// lost: what became of it must be asked of the store.
	lost bool
	// mine: this term is claiming, delivering or settling it.
	mine    bool
	listing uint64 // the last listing that had it
	claimed *core.Claimed
}

// ready tells whether the job can be claimed when it is due.
func (j *job) ready() bool { return j.open.State == core.JobReady && j.open.Ref != nil && !j.lost }

// away tells whether the job is lent to somebody else, or may be.
func (j *job) away() bool { return j.open.State == core.JobActive || j.lost }

// lines are those of a term.
type lines struct {
	all     map[*line]struct{}
	due     lineHeap // the heads of which can be claimed, by when they are due
	open    int      // jobs in all of them, and events that are being parked
	crowded int
}

// canPark tells whether the route parks what is refused.
func (t *term) canPark() bool { return t.route.relay.cfg.Queue != nil }

// divert sends the key's events through the queue from now on. The key must be
// neither ready nor waiting. The lock is held.
func (t *term) divert(k *key) *line {
	if k.line == nil {
		k.wait = nil
		k.line = &line{key: k, place: -1}
		t.lines.all[k.line] = struct{}{}
		t.route.blocked.also(k.name)
	}
	return k.line
}

// line takes the key's head off to be parked at the end of its line. The lock is
// held.
func (t *term) line(l *line, p park) {
	s := t.win.at(l.key.head)
	l.pending = append(l.pending, s.entry.Mark.Position())
	t.lines.open++
	p.key, p.line, p.place = l.key, l, l.key.head
	l.key.head = s.next
	l.key.count--
	t.park(p)
}

// follow parks all that was read of a key behind its open jobs, unless some of it
// is in a call. The lock is held.
func (t *term) follow(k *key) {
	if k.inCall || k.parking {
		return
	}
	if k.line.open() == 0 && !k.line.busy {
		t.release(k.line)
		return
	}
	for k.count > 0 {
		t.line(k.line, park{state: core.JobReady})
	}
	t.arrange(k.line)
}

// arrange puts the line where it belongs after any change: among those that have
// something to do, or nowhere; and releases the key when nothing of it is open.
// The lock is held.
func (t *term) arrange(l *line) {
	if l.place >= 0 {
		heap.Remove(&t.lines.due, l.place)
	}
	open := l.open()
	waits := false // for something other than its turn
	switch {
	case l.busy || l.key.inCall || l.key.parking:
	case open == 0:
		t.release(l)
		return
	case len(l.jobs) == 0 || len(l.pending) > 0 && l.jobs[0].open.Position.Compare(l.pending[0]) > 0:
	case l.away > 0 || !l.jobs[0].ready():
		waits = true
	default:
		l.due = l.jobs[0].due
		heap.Push(&t.lines.due, l)
		if now := time.Now(); l.due.After(now) {
			waits = true
			t.setAlarm(now)
		} else {
			t.work.Signal()
		}
	}
	t.crowd(l, open > t.route.cfg.MaxParked || l.crowded && open > 0 && !waits)
}

// crowd notes whether reading must wait for the line. One that was too long
// counts until it has got through or waits, so that a busy key leaves the queue
// at last. The lock is held.
func (t *term) crowd(l *line, crowded bool) {
	if crowded == l.crowded {
		return
	}
	l.crowded = crowded
	if crowded {
		t.lines.crowded++
		return
	}
	t.lines.crowded--
	t.room.Signal()
}

// release lets the key of an empty line be sent directly again. The lock is
// held.
func (t *term) release(l *line) {
	t.crowd(l, false)
	delete(t.lines.all, l)
	k := l.key
	k.line = nil
	t.route.blocked.ok(k.name)
	t.keys.resume(k)
}

// insert puts a job into its place. The lock is held.
func (t *term) insert(l *line, j *job) {
	j.key = l.key
	i, _ := l.find(j.open.Position)
	l.jobs = slices.Insert(l.jobs, i, j)
	l.count(j, 1)
	t.lines.open++
}

// count adds the job to those that are away, if it is one, or takes it off. The
// lock is held.
func (l *line) count(j *job, by int) {
	if j.away() {
		l.away += by
	}
}

// change changes what is known of where a job is. The lock is held.
func (j *job) change(lost bool, state core.JobState) {
	j.key.line.count(j, -1)
	j.lost, j.open.State = lost, state
	j.key.line.count(j, 1)
}

// remove takes a job out that is not open any more. The lock is held.
func (t *term) remove(l *line, j *job) {
	if i, there := l.find(j.open.Position); there {
		l.jobs = slices.Delete(l.jobs, i, i+1)
		l.count(j, -1)
		t.lines.open--
	}
}

// find returns where the job of this position is, or would be.
func (l *line) find(p core.Position) (int, bool) {
	return slices.BinarySearchFunc(l.jobs, p, func(j *job, p core.Position) int { return j.open.Position.Compare(p) })
}

// open is how many jobs are open, with those that are being parked.
func (l *line) open() int { return len(l.jobs) + len(l.pending) }

// holding tells whether a failed job holds the key.
func (l *line) holding() bool { return len(l.jobs) > 0 && l.jobs[0].open.State == core.JobFailed }

// lineHeap has the line that is due first on top.
type lineHeap []*line

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *lineHeap) Push(x any) {
	l := x.(*line)
	l.place = len(*h)
	*h = append(*h, l)
}

func (h *lineHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.place = -1
	return l
}
