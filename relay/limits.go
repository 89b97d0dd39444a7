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

// tenantRoom is how many jobs of a tenant may begin until a time, and when one
// more may.
func (l *limits) tenantRoom(tenant string, until time.Time) (int, time.Time) {
	if l.tenant == 0 {
		return math.MaxInt32, time.Time{}
	}
	of := l.of(tenant, until)
	return room(of, until), nextToken(of, until)
}

// room is how many tokens there are at a time.
func room(l *rate.Limiter, at time.Time) int {
	return int(l.TokensAt(at) + 1e-9)
}

// nextToken is when there is a whole one, as seen at a time.
func nextToken(l *rate.Limiter, at time.Time) time.Time {
	missing := 1 - l.TokensAt(at)
	if missing <= 0 {
		return at
	}
	return at.Add(time.Duration(math.Ceil(missing / float64(l.Limit()) * float64(time.Second))))
}
