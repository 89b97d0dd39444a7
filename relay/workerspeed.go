package relay

import "time"

const (
	// leastAhead is for how long claims run ahead at least.
	leastAhead = 250 * time.Millisecond
	// claimsAhead is how many claims take as long as what is ahead at least.
	claimsAhead = 8
	// maxAhead bounds the jobs ahead, and one claim.
	maxAhead = 500
	// leastJob is the shortest time that a job is taken to need.
	leastJob = time.Microsecond
)

// speed is how long a job takes a lane, and a claim the store: averages of what
// was measured, in which a new value counts a quarter. 0 is not measured yet.
type speed struct {
	job, claim time.Duration
}

func (s *speed) saw(call time.Duration, jobs int) {
	s.job = average(s.job, max(call/time.Duration(jobs), leastJob))
}

func (s *speed) claimed(took time.Duration) { s.claim = average(s.claim, max(took, leastJob)) }

func average(so, now time.Duration) time.Duration {
	if so == 0 {
		return now
	}
	return so + (now-so)/4
}

// horizon is how far ahead jobs are claimed: never more than a tenth of their
// lease, and so little that a job of a higher class or of another tenant waits
// for few others.
func (s *speed) horizon(lease time.Duration) time.Duration {
	return min(lease/10, max(leastAhead, claimsAhead*s.claim))
}

// ahead is how many jobs can start within the horizon, and at once on lanes
// that are idle. began tells of each lane when its call began, zero if it is
// idle. A lane whose call takes longer than usual is as slow as that.
func (s *speed) ahead(began []time.Time, batch int, lease time.Duration, now time.Time) int {
	horizon := s.horizon(lease)
	jobs := 0.0
	for _, since := range began {
		if since.IsZero() {
			jobs += float64(batch)
		}
		if s.job == 0 {
			continue
		}
		each := s.job
		if !since.IsZero() {
			each = max(each, now.Sub(since)/time.Duration(batch))
		}
		jobs += float64(horizon) / float64(each)
	}
	return min(int(jobs), max(maxAhead, 1))
}
