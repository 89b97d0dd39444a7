package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// JobReport is what CheckJobs found.
type JobReport struct {
	// Committed counts the jobs of committed transactions, without Duplicates.
	// Each of them is Completed, Failed, or Lost.
	Committed, Duplicates, Completed, Failed, Lost int
	// Claims counts the leases of jobs, TakenBack those that ran out, Retried the
	// settlements that let a job be tried again, Repeats the arrivals beyond the
	// first of a job.
	Claims, TakenBack, Retried, Repeats int
	// Faults tells what must not be, the first of each kind in full.
	Faults []string
}

// Line is the report in one line.
func (r JobReport) Line() string {
	return fmt.Sprintf("lost=%d faults=%d committed=%d duplicates=%d completed=%d failed=%d claims=%d taken_back=%d retried=%d repeats=%d",
		r.Lost, len(r.Faults), r.Committed, r.Duplicates, r.Completed, r.Failed, r.Claims, r.TakenBack, r.Retried, r.Repeats)
}

// turn is one lease of a job, from its claim to its end.
type turn struct {
	job, event, token, owner string
	claimed, until           time.Time
	// ended is when the holder settled it, if it did.
	ended      time.Time
	deliveries []*delivery
}

// delivery is one try of an actor.
type delivery struct {
	Note
	began, ended time.Time // ended is zero where the process died
}

// jobCheck is a CheckJobs under way.
type jobCheck struct {
	report JobReport
	faults map[string]int
	// turns by event and owner, and by token.
	turns  map[string][]*turn
	tokens map[string]*turn
	rows   map[string]JobRow
	open   map[string]*turn // by job
	first  map[string]time.Time
}

// CheckJobs compares what a JobWorkload committed, what the server wrote, and
// what actors delivered, on one machine's clock.
func CheckJobs(ledger []EnqueuedJob, changes []Change, notes []Note) JobReport {
	c := &jobCheck{
		faults: map[string]int{}, turns: map[string][]*turn{}, tokens: map[string]*turn{}, rows: map[string]JobRow{},
		open: map[string]*turn{}, first: map[string]time.Time{},
	}
	c.each(changes, c.follow)
	c.assign(notes)
	c.each(changes, c.judge)
	c.apart()
	c.compare(ledger)
	for kind, n := range c.faults {
		if n > 1 {
			c.report.Faults = append(c.report.Faults, fmt.Sprintf("%s: %d times", kind, n))
		}
	}
	slices.Sort(c.report.Faults)
	return c.report
}

// each calls look with each change and the job as it was before.
func (c *jobCheck) each(changes []Change, look func(change Change, before JobRow)) {
	clear(c.rows)
	for _, change := range changes {
		look(change, c.rows[change.Job])
		c.rows[change.Job] = change.Row
	}
}

func (c *jobCheck) fault(kind, format string, args ...any) {
	if c.faults[kind]++; c.faults[kind] == 1 {
		c.report.Faults = append(c.report.Faults, kind+": "+fmt.Sprintf(format, args...))
	}
}

// follow makes the turns.
func (c *jobCheck) follow(change Change, before JobRow) {
	row := change.Row
	held := c.open[change.Job]
	if before.State == core.JobActive && held != nil {
		if row.State == core.JobActive && row.Token == before.Token {
			held.until = row.LeaseUntil // extended
			return
		}
		if row.Token == before.Token {
			held.ended = change.At
		}
		delete(c.open, change.Job)
	}
	if row.State != core.JobActive {
		return
	}
	c.report.Claims++
	t := &turn{
		job: change.Job, event: row.EventID, token: row.Token, owner: row.Owner, claimed: row.ClaimedAt, until: row.LeaseUntil,
	}
	c.open[change.Job] = t
	name := row.EventID + " by " + row.Owner
	c.turns[name] = append(c.turns[name], t)
	switch other, known := c.tokens[row.Token]; {
	case row.Token == "":
		c.fault("lent without a token", "%+v", row)
	case !known:
		c.tokens[row.Token] = t
	case other.owner != t.owner || !other.claimed.Equal(t.claimed) || other.job == t.job:
		c.fault("a token of two claims", "%s of %s at %s, and of %s at %s", row.Token, other.owner, other.claimed, t.owner, t.claimed)
	}
}

// assign puts what was delivered into the turns.
func (c *jobCheck) assign(notes []Note) {
	last := map[string]*delivery{}
	for _, n := range notes {
		name := n.ID + " by " + n.Owner
		if n.End {
			if d := last[name]; d != nil {
				d.Note, d.ended = n, n.At
			}
			if n.Arrived {
				if _, again := c.first[n.ID]; again {
					c.report.Repeats++
				} else {
					c.first[n.ID] = n.At
				}
			}
			continue
		}
		d := &delivery{Note: n, began: n.At}
		last[name] = d
		turns := c.turns[name]
		i := slices.IndexFunc(turns, func(t *turn) bool { return t.claimed.After(n.At) })
		if i < 0 {
			i = len(turns)
		}
		if i == 0 {
			c.fault("a delivery without a claim", "%s by %s at %s", n.ID, n.Owner, n.At)
			continue
		}
		turns[i-1].deliveries = append(turns[i-1].deliveries, d)
	}
}

// outcome is that of the turn's delivery which had ended by a time; an outcome of
// "not attempted" is none.
func (t *turn) outcome(by time.Time) string {
	for _, d := range t.deliveries {
		if !d.ended.IsZero() && !d.ended.Truncate(time.Millisecond).After(by) && d.Outcome != core.NotAttempted.String() {
			return d.Outcome
		}
	}
	return ""
}

// judge looks at one change.
func (c *jobCheck) judge(change Change, before JobRow) {
	row := change.Row
	switch {
	case change.Gone:
		c.fault("a job was removed", "%s", change.Job)
		return
	case row.Attempts > row.MaxAttempts && row.MaxAttempts > 0:
		c.fault("more attempts than allowed", "%s: %d of %d", row.EventID, row.Attempts, row.MaxAttempts)
	case before.State.Final():
		c.fault("a job that had ended was changed", "%s: %s to %s", row.EventID, before.State, row.State)
		return
	case row.Attempts < before.Attempts || row.Attempts > before.Attempts+1:
		c.fault("attempts were miscounted", "%s: %d after %d", row.EventID, row.Attempts, before.Attempts)
	}
	if before.State == core.JobReady && row.State == core.JobActive && row.AvailableAt.After(row.ClaimedAt) {
		c.fault("a job was lent before it was due", "%s: claimed at %s, due at %s", row.EventID, row.ClaimedAt, row.AvailableAt)
	}
	if before.State != core.JobActive {
		if row.State != core.JobActive && before.State != "" {
			c.fault("a job that nobody held was changed", "%s: %s to %s", row.EventID, before.State, row.State)
		}
		return
	}
	switch {
	case row.State == core.JobActive && row.Token != before.Token:
		c.fault("a job was lent while another held it", "%s: to %s, while %s held it until %s", row.EventID, row.Owner, before.Owner, before.LeaseUntil)
	case row.State == core.JobActive:
	case row.Token == "":
		c.takenBack(change, before)
	default:
		c.settled(change, before)
	}
}

// takenBack looks at a lease that was ended without its holder.
func (c *jobCheck) takenBack(change Change, before JobRow) {
	row := change.Row
	c.report.TakenBack++
	at := row.AvailableAt // the time of the command
	if row.State != core.JobReady {
		at = row.FinishedAt
	}
	if !at.After(before.LeaseUntil.Add(core.TakeBackGrace)) {
		c.fault("a lease was taken back early", "%s: at %s, it ran until %s", row.EventID, at, before.LeaseUntil)
	}
	if row.Attempts != before.Attempts {
		c.fault("a lease that ran out counted as an attempt", "%s", row.EventID)
	}
	switch {
	case row.State == core.JobReady && row.Redeliveries == before.Redeliveries+1:
	case row.State == core.JobFailed && row.Code == core.CodeCrashed:
	default:
		c.fault("a lease was taken back wrongly", "%s: %+v", row.EventID, row)
	}
}

// settled looks at what a holder wrote: it must be what the delivery of that very
// lease had told.
func (c *jobCheck) settled(change Change, before JobRow) {
	row := change.Row
	t := c.turnOf(row.EventID, before)
	if t == nil {
		c.fault("a settlement without a claim", "%s by %s", row.EventID, before.Owner)
		return
	}
	outcome := t.outcome(change.At)
	counted := row.Attempts > before.Attempts
	want := map[core.JobState][]string{
		core.JobCompleted: {core.Delivered.String()},
		core.JobFailed:    {core.Refused.String(), core.Rejected.String(), core.Unknown.String(), core.Unavailable.String()},
		core.JobReady:     {"", core.Refused.String(), core.Unknown.String(), core.Unavailable.String(), core.Throttled.String()},
	}[row.State]
	if !slices.Contains(want, outcome) || row.State == core.JobReady && outcome == "" && counted {
		c.fault("a job was settled otherwise than it was delivered", "%s by %s: %s (counted: %t) at %s, the delivery of that lease ended as %q",
			row.EventID, before.Owner, row.State, counted, change.At, outcome)
	}
	if row.State == core.JobReady {
		c.report.Retried++
	}
	if row.State == core.JobFailed && row.Code == core.CodeExhausted && row.Attempts != row.MaxAttempts {
		c.fault("a job was given up early", "%s: after %d of %d attempts", row.EventID, row.Attempts, row.MaxAttempts)
	}
}

func (c *jobCheck) turnOf(event string, held JobRow) *turn {
	for _, t := range c.turns[event+" by "+held.Owner] {
		if t.token == held.Token {
			return t
		}
	}
	return nil
}

// apart looks for deliveries of one job that ran at once under leases that were
// good.
func (c *jobCheck) apart() {
	type span struct {
		from, to time.Time
		t        *turn
	}
	spans := map[string][]span{}
	for _, turns := range c.turns {
		for _, t := range turns {
			good := t.until
			if !t.ended.IsZero() && t.ended.Before(good) {
				good = t.ended
			}
			for _, d := range t.deliveries {
				to := good
				if !d.ended.IsZero() && d.ended.Before(to) {
					to = d.ended
				}
				if d.began.Before(to) {
					spans[t.event] = append(spans[t.event], span{d.began, to, t})
				}
			}
		}
	}
	for event, all := range spans {
		slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
		for i := 1; i < len(all); i++ {
			if all[i].from.Before(all[i-1].to) {
				c.fault("two deliveries at once", "%s by %s from %s, and by %s until %s", event, all[i].t.owner, all[i].from, all[i-1].t.owner, all[i-1].to)
			}
		}
	}
}

// compare looks whether every job that was committed, and no other, has ended.
func (c *jobCheck) compare(ledger []EnqueuedJob) {
	byEvent := map[string]JobRow{}
	keyed := map[string]string{}
	for job, row := range c.rows {
		byEvent[row.EventID] = row
		if row.DedupKey == "" {
			continue
		}
		if other, twice := keyed[row.DedupKey]; twice {
			c.fault("two jobs of one key", "%s: %s and %s", row.DedupKey, other, job)
		}
		keyed[row.DedupKey] = job
	}
	committed := map[string]bool{}
	of := map[string]string{} // job by key, as receipts told
	for _, entry := range ledger {
		if known := of[entry.DedupKey]; entry.DedupKey != "" && known != "" && known != entry.JobID {
			c.fault("receipts tell two jobs of one key", "%s: %s and %s", entry.DedupKey, known, entry.JobID)
		}
		of[entry.DedupKey] = entry.JobID
		if entry.Duplicate {
			c.report.Duplicates++
			continue
		}
		c.report.Committed++
		committed[entry.EventID] = true
		row, there := byEvent[entry.EventID]
		_, arrived := c.first[entry.EventID]
		switch {
		case there && row.State == core.JobCompleted && arrived:
			c.report.Completed++
		case there && row.State == core.JobFailed && row.Code != "":
			c.report.Failed++
		default:
			c.report.Lost++
			c.fault("lost", "%s: %+v, arrived: %t", entry.EventID, row, arrived)
		}
	}
	for event := range byEvent {
		if !committed[event] {
			c.fault("phantom", "a job of event %s, which no transaction committed", event)
		}
	}
	for event := range c.first {
		if !committed[event] {
			c.fault("phantom", "event %s arrived, and no transaction committed it", event)
		}
	}
}
