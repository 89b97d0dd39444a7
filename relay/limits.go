package relay

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// limits are the rates of a worker, in this process. They are guarded by its
// lock. The nil value limits nothing.
type limits struct {
	all     *rate.Limiter // nil is no limit
	tenant  float64       // 0 is no limit
	tenants map[string]*rate.Limiter
}

func newLimits(all, tenant float64) *limits {
	l := &limits{tenant: tenant, tenants: map[string]*rate.Limiter{}}
	if all > 0 {
		l.all = newLimiter(all)
	}
	return l
}

// newLimiter lets bursts of a tenth of a second through.
func newLimiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), int(max(1, math.Ceil(perSecond/10))))
}

// most is how many jobs may begin now, at most n; where it is none, also when
// one may.
func (l *limits) most(now time.Time, n int) (int, time.Time) {
	if l.all == nil {
		return n, time.Time{}
	}
	return min(n, room(l.all, now)), nextToken(l.all, now)
}

// begin takes a tenant's turn, or tells when there is one.
func (l *limits) begin(now time.Time, tenant string) (bool, time.Time) {
	if l.tenant == 0 {
		return true, time.Time{}
	}
	of := l.of(tenant, now)
	if of.AllowN(now, 1) {
		return true, time.Time{}
	}
	return false, nextToken(of, now)
}

// began counts jobs that most let begin.
func (l *limits) began(now time.Time, n int) {
	if l.all != nil && n > 0 {
		l.all.AllowN(now, n)
	}
}

func (l *limits) of(tenant string, now time.Time) *rate.Limiter {
	of := l.tenants[tenant]
	if of == nil {
		if len(l.tenants) >= maxTenantsKnown {
			for name, idle := range l.tenants { // those that would be as new
				if idle.TokensAt(now) >= float64(idle.Burst()) {
					delete(l.tenants, name)
				}
			}
		}
		of = newLimiter(l.tenant)
		l.tenants[tenant] = of
	}
	return of
}

// ahead is how many jobs to have at hand for what may begin within the horizon,
// at most n.
func (l *limits) ahead(now time.Time, horizon time.Duration, n int) int {
	if l.all == nil {
		return n
	}
	return min(n, int(tokens(l.all, now, horizon)))
}

// next is when one more job than have are wanted at hand.
func (l *limits) next(now time.Time, horizon time.Duration, have int) time.Time {
	if l.all == nil {
		return now
	}
	return later(l.all, now, tokens(l.all, now, horizon)-float64(have))
}

// tenantRoom is how many jobs of a tenant are wanted beside those at hand; if it
// is none, also when it will be one.
func (l *limits) tenantRoom(tenant string, now time.Time, horizon time.Duration, have int) (int, time.Time) {
	if l.tenant == 0 {
		return maxAhead, time.Time{}
	}
	of := l.of(tenant, now)
	room := tokens(of, now, horizon) - float64(have)
	if room >= 1 {
		return min(int(room), maxAhead), time.Time{}
	}
	return 0, later(of, now, room)
}

// tokens are those that there are and that come until the horizon, if they are
// used as they come.
func tokens(l *rate.Limiter, now time.Time, horizon time.Duration) float64 {
	return l.TokensAt(now) + float64(l.Limit())*horizon.Seconds() + rounding
}

// later is when there is a whole token, of which there is a part now.
func later(l *rate.Limiter, now time.Time, part float64) time.Time {
	return now.Add(time.Duration(math.Ceil(max(0, 1-part) / float64(l.Limit()) * float64(time.Second))))
}

// room is how many tokens there are now.
func room(l *rate.Limiter, now time.Time) int { return int(l.TokensAt(now) + rounding) }

// nextToken is when there is a whole one.
func nextToken(l *rate.Limiter, now time.Time) time.Time { return later(l, now, l.TokensAt(now)) }

// rounding is what sums of parts of tokens may be too little.
const rounding = 1e-6
