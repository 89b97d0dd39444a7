package trial

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

// story tells what became of jobs, second by second.
type story struct {
	ledger  []EnqueuedJob
	changes []Change
	notes   []Note
	rows    map[string]JobRow
}

func at(second float64) time.Time {
	return time.Unix(1_000_000, 0).UTC().Add(time.Duration(second * float64(time.Second)))
}

func newStory() *story { return &story{rows: map[string]JobRow{}} }

func (s *story) write(second float64, job string, edit func(*JobRow)) {
	row := s.rows[job]
	edit(&row)
	s.rows[job] = row
	s.changes = append(s.changes, Change{Job: job, At: at(second), Row: row})
}

func (s *story) enqueue(job string) {
	s.ledger = append(s.ledger, EnqueuedJob{EventID: job, JobID: job})
	s.write(0, job, func(r *JobRow) { r.EventID, r.State, r.MaxAttempts = job, core.JobReady, 2 })
}

// claim lends a job for two seconds.
func (s *story) claim(second float64, job, owner, token string) {
	s.write(second, job, func(r *JobRow) {
		r.State, r.Owner, r.Token, r.ClaimedAt, r.LeaseUntil = core.JobActive, owner, token, at(second), at(second+2)
	})
}

func (s *story) deliver(from, to float64, job, owner, outcome string) {
	s.notes = append(s.notes, Note{At: at(from), Owner: owner, ID: job})
	s.notes = append(s.notes, Note{At: at(to), Owner: owner, ID: job, End: true, Outcome: outcome, Arrived: outcome == "delivered"})
}

func (s *story) end(second float64, job string, state core.JobState, code string) {
	s.write(second, job, func(r *JobRow) { r.State, r.Code, r.Attempts, r.FinishedAt = state, code, r.Attempts+1, at(second) })
}

func (s *story) takeBack(second float64, job string) {
	s.write(second, job, func(r *JobRow) {
		r.State, r.Token, r.Owner, r.Redeliveries, r.AvailableAt = core.JobReady, "", "", r.Redeliveries+1, at(second)
	})
}

func TestCheckJobsFindsEachFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tell func(*story)
		want string // "" is no fault
	}{
		"all is well": {func(*story) {}, ""},
		"one is refused, then given up": {func(s *story) {
			s.enqueue("b")
			s.claim(1, "b", "w", "t1")
			s.deliver(1.1, 1.2, "b", "w", "refused")
			s.end(1.3, "b", core.JobReady, "refused")
			s.claim(2, "b", "w", "t2")
			s.deliver(2.1, 2.2, "b", "w", "refused")
			s.end(2.3, "b", core.JobFailed, core.CodeExhausted)
		}, ""},
		"one is taken back and delivered by another": {func(s *story) {
			s.enqueue("b")
			s.claim(1, "b", "w", "t1")
			s.notes = append(s.notes, Note{At: at(1.5), Owner: "w", ID: "b"})
			s.takeBack(8.5, "b")
			s.claim(9, "b", "v", "t2")
			s.deliver(9.1, 9.2, "b", "v", "delivered")
			s.end(9.3, "b", core.JobCompleted, "")
		}, ""},
		"lost":                   {func(s *story) { s.enqueue("b") }, "lost: b"},
		"phantom":                {func(s *story) { s.enqueue("b"); s.ledger = s.ledger[:1] }, "phantom: a job of event b"},
		"completed and not sent": {func(s *story) { s.enqueue("b"); s.claim(1, "b", "w", "t1"); s.end(2, "b", core.JobCompleted, "") }, "settled otherwise"},
		"completed before it was": {func(s *story) {
			s.enqueue("b")
			s.claim(1, "b", "w", "t1")
			s.deliver(1.1, 2, "b", "w", "delivered")
			s.end(1.5, "b", core.JobCompleted, "")
		}, "settled otherwise"},
		"refused and completed": {func(s *story) {
			s.enqueue("b")
			s.claim(1, "b", "w", "t1")
			s.deliver(1.1, 1.2, "b", "w", "refused")
			s.end(1.5, "b", core.JobCompleted, "")
		}, "settled otherwise"},
		"lent while held":            {func(s *story) { s.enqueue("b"); s.claim(1, "b", "w", "t1"); s.claim(1.5, "b", "v", "t2") }, "lent while another held it"},
		"lent after its end":         {func(s *story) { s.claim(5, "a", "w", "t9") }, "had ended"},
		"taken back early":           {func(s *story) { s.enqueue("b"); s.claim(1, "b", "w", "t1"); s.takeBack(7.9, "b") }, "taken back early"},
		"a token twice":              {func(s *story) { s.enqueue("b"); s.claim(1.5, "b", "w", "ta") }, "a token of two claims"},
		"more attempts than allowed": {func(s *story) { s.enqueue("b"); s.write(1, "b", func(r *JobRow) { r.Attempts = 3 }) }, "more attempts"},
		"an attempt for nothing":     {func(s *story) { s.enqueue("b"); s.claim(1, "b", "w", "t1"); s.end(2, "b", core.JobReady, "") }, "settled otherwise"},
		"not due": {func(s *story) {
			s.enqueue("b")
			s.write(1, "b", func(r *JobRow) { r.AvailableAt = at(5) })
			s.claim(2, "b", "w", "t1")
		}, "before it was due"},
		"two at once": {func(s *story) {
			s.enqueue("b")
			s.claim(1, "b", "w", "t1")
			s.notes = append(s.notes, Note{At: at(1.1), Owner: "w", ID: "b"})
			s.claim(1.2, "b", "v", "t2")
			s.deliver(1.3, 1.4, "b", "v", "delivered")
		}, "two deliveries at once"},
		"not lent at all": {func(s *story) { s.enqueue("b"); s.deliver(1.3, 1.4, "b", "v", "delivered") }, "without a claim"},
		"removed":         {func(s *story) { s.changes = append(s.changes, Change{Job: "a", At: at(9), Gone: true}) }, "removed"},
		"two jobs of a key": {func(s *story) {
			s.enqueue("b")
			for _, job := range []string{"a", "b"} {
				s.write(3, job, func(r *JobRow) { r.DedupKey = "k" })
			}
		}, "two jobs of one key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			s.enqueue("a")
			s.claim(1, "a", "w", "ta")
			s.deliver(1.1, 1.2, "a", "w", "delivered")
			s.end(1.3, "a", core.JobCompleted, "")
			test.tell(s)
			report := CheckJobs(s.ledger, s.changes, s.notes)
			if test.want == "" {
				require.Empty(t, report.Faults, report.Line())
				require.Equal(t, len(s.ledger), report.Completed+report.Failed)
				return
			}
			require.Contains(t, strings.Join(report.Faults, "\n"), test.want)
		})
	}
}
