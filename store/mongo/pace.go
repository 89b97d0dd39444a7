package mongo

import "time"

const (
	firstPause   = time.Second
	longestPause = 10 * time.Minute
)

// pace spaces recoveries that lead nowhere: each scan gives all events of the
// margin to the sink again.
type pace struct {
	pause time.Duration // before the next recovery; 0 when the stream has given something since the last
	until time.Time     // when the pause that runs ends; zero when none does
}

// wait is how long the next recovery has still to wait. It is asked when the
// stream has failed, and the pause begins when it is asked first: a scan may
// have taken longer.
func (p *pace) wait(now time.Time) time.Duration {
	if p.pause == 0 {
		return 0
	}
	if p.until.IsZero() {
		p.until = now.Add(p.pause)
	}
	return max(0, p.until.Sub(now))
}

// began notes a recovery.
func (p *pace) began() {
	p.pause, p.until = max(firstPause, min(2*p.pause, longestPause)), time.Time{}
}

// gave notes that the stream gave something.
func (p *pace) gave() { *p = pace{} }
