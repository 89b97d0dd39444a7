package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// verdict is what became of the jobs of a call.
type verdict struct {
	settled []settled
	// pause is for how long the sink asked the whole fleet to wait, and reason
	// why.
	pause  time.Duration
	reason error
	// spare are the pauses of parts that the sink asked for.
	spare []core.Pause
}

func (v *verdict) settle(j *held, s core.Settlement) {
	s.Job = j.job
	v.settled = append(v.settled, settled{held: j, Settlement: s})
}

// note is what this process remembers of a job that did not get through for a
// reason that may not be its own.
type note struct {
	// alone: it is delivered in calls of its own.
	alone bool
	// unanswered counts unknown outcomes and the like, for the backoff; suspects
	// those of them while others passed.
	unanswered, suspects, naks int
	// passes is worker.passes as of the last of them.
	passes uint64
}

// maxNotes bounds what is remembered; above it all is forgotten.
const maxNotes = 10_000

// noteOf is the note of a job, made if there is none. The lock is held.
func (w *worker) noteOf(j *held) *note {
	n := w.notes[j.job.ID]
	if n == nil {
		if len(w.notes) >= maxNotes {
			clear(w.notes)
		}
		n = &note{passes: w.passes}
		w.notes[j.job.ID] = n
	}
	return n
}

func (w *worker) isAlone(j *held) bool {
	n := w.notes[j.job.ID]
	return n != nil && n.alone
}

// suspectAll lets jobs be delivered in calls of their own from now on.
func (w *worker) suspectAll(jobs []*held) {
	if len(jobs) < 2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		w.noteOf(j).alone = true
	}
}

// judge decides what becomes of the jobs of a call that began in a round. Those
// that were not attempted may go back into the hand. The lock is held.
func (w *worker) judge(jobs []*held, results []core.Result, round uint64, now time.Time) (v verdict) {
	n := answersOf(results)
	w.passGate(now, n, round)
	for i, j := range jobs {
		r := &results[i]
		switch r.Outcome {
		case core.Delivered:
			delete(w.notes, j.job.ID)
			v.settle(j, core.Settlement{Kind: core.Complete, Receipt: r.Receipt})
		case core.Rejected:
			delete(w.notes, j.job.ID)
			v.settle(j, core.Settlement{Kind: core.Fail, Failure: failure(core.CodeRejected, reasonOf(r))})
		case core.Refused:
			code := core.CodeRefused
			if mayHaveArrived(r) {
				code = core.CodeUnknown
			}
			v.settle(j, w.refuse(j, code, r))
		case core.Unknown:
			v.settle(j, w.unanswered(j, core.CodeUnknown, r, n))
		case core.Unavailable:
			if n[core.Delivered] == 0 && !w.othersPassed(j) {
				w.shutGate(now, reasonOf(r))
			}
			v.settle(j, w.unanswered(j, core.CodeUnavailable, r, n))
		case core.Throttled:
			if throttlesPart(r) {
				w.spare(now, j, r, &v)
			} else {
				w.throttle(now, j, r, &v)
			}
		default: // NotAttempted, also where a sink forgot to answer
			w.notAttempted(now, j, r, n, &v)
		}
	}
	return v
}

// refuse counts an attempt: the job is tried again after its backoff, or after the
// time that the sink asked for if that is longer, or given up.
func (w *worker) refuse(j *held, code string, r *core.Result) core.Settlement {
	most := j.job.MaxAttempts
	if most <= 0 {
		most = core.DefaultMaxAttempts
	}
	if j.job.Lease.Attempt >= most {
		delete(w.notes, j.job.ID)
		return core.Settlement{Kind: core.Fail, Failure: failure(core.CodeExhausted, reasonOf(r))}
	}
	return core.Settlement{
		Kind: core.Retry, Failure: failure(code, reasonOf(r)), Delay: max(w.backoffOf(j).nth(j.job.Lease.Attempt), r.RetryAfter),
	}
}

// unanswered is for a job whose failure may be the sink's: it is tried again and
// no attempt is counted. From the third time on that others passed meanwhile it
// counts as refused. The lock is held.
func (w *worker) unanswered(j *held, code string, r *core.Result, n tally) core.Settlement {
	if code == core.CodeUnknown && w.caps.NoRepeat {
		delete(w.notes, j.job.ID)
		return core.Settlement{Kind: core.EndUnknown, Failure: failure(code, reasonOf(r))}
	}
	passed := n[core.Delivered] > 0 || w.othersPassed(j)
	note := w.noteOf(j)
	note.unanswered++
	note.passes = w.passes
	if passed {
		note.alone = true
		if note.suspects++; note.suspects >= timesSuspect {
			return w.refuse(j, code, r)
		}
	}
	delay := w.backoffOf(j).nth(note.unanswered)
	if code == core.CodeUnavailable && !passed {
		// So that each round of an outage tries another one, and it goes out soon
		// when the sink is back.
		delay = Backoff{Initial: w.cfg.OutageBackoff.Initial, Max: w.cfg.OutageBackoff.Initial}.nth(1)
	} else if !passed {
		delay = min(delay, w.cfg.OutageBackoff.Max) // it may be the sink: be there when it is back
	}
	return core.Settlement{Kind: core.Retry, Uncounted: true, Failure: failure(code, reasonOf(r)), Delay: delay}
}

// othersPassed tells whether something was delivered since the job did not get
// through last. The lock is held.
func (w *worker) othersPassed(j *held) bool {
	n := w.notes[j.job.ID]
	return n != nil && w.passes > n.passes
}

// notAttempted is for a job of which nothing was sent. The lock is held.
func (w *worker) notAttempted(now time.Time, j *held, r *core.Result, n tally, v *verdict) {
	switch {
	case w.draining:
		v.settle(j, core.Settlement{Kind: core.GiveBack})
	case n[core.Delivered] == 0:
		if n[core.NotAttempted] == n.total() {
			w.shutGate(now, reasonOf(r))
		}
		v.settle(j, w.unanswered(j, core.CodeUnavailable, r, n))
	default:
		note := w.noteOf(j)
		if note.naks++; note.naks > timesSuspect { // others are attempted again and again
			v.settle(j, w.unanswered(j, core.CodeUnavailable, r, n))
			return
		}
		w.hand.put(j)
	}
}

func (t tally) total() (n int) {
	for _, of := range t {
		n += of
	}
	return n
}

func (w *worker) backoffOf(j *held) Backoff {
	if b, ok := w.cfg.TypeBackoff[j.job.Lease.Event.Type]; ok {
		return b
	}
	return w.cfg.Backoff
}

func failure(code string, reason error) core.Failure {
	return core.Failure{Code: code, Reason: reason.Error()}
}

// passGate lets the gate see the outcomes of a call that began in a round, before
// the single jobs are looked at. The lock is held.
func (w *worker) passGate(now time.Time, n tally, round uint64) {
	w.gate.look(round)
	if n[core.Delivered] > 0 {
		w.passes++
	}
	answered := n[core.Delivered]
	if w.gate.rounds == 0 {
		answered += n[core.Refused] + n[core.Rejected]
	}
	if answered == 0 {
		if w.gate.rounds > 0 && n[core.Refused]+n[core.Rejected] == 0 {
			w.gate.shut(now)
		}
		return
	}
	if w.gate.rounds > 0 {
		w.gate.lift()
	}
	w.outage.ok(opDeliver)
	// What began before the sink asked to wait tells nothing of now.
	if n[core.Throttled] == 0 && !now.Before(w.throttled) {
		w.outage.ok(opThrottle)
	}
	if n[core.Unavailable] == 0 {
		w.gate.widen()
	}
}

// shutGate begins a round of an outage. The lock is held.
func (w *worker) shutGate(now time.Time, reason error) {
	if w.gate.late {
		return
	}
	w.gate.shut(now)
	w.outage.failed(opDeliver, reason, "retry_in", w.gate.until.Sub(now))
}
