package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gooutbox/outbox/core"
)

// tenantRow is how long the jobs of one tenant waited: medians, milliseconds.
type tenantRow struct {
	Tenant string `json:"tenant"`
	Jobs   int    `json:"jobs"`
	// P99 is beside the noisy tenant, AloneP99 without it.
	P99      float64 `json:"p99_ms"`
	AloneP99 float64 `json:"alone_p99_ms"`
}

// tenantReport is how nine tenants fare beside a noisy one.
type tenantReport struct {
	NoisyJobs int         `json:"noisy_jobs"`
	Runs      int         `json:"runs"`
	Tenants   []tenantRow `json:"tenants"`
	// P99 is that of all jobs of the nine, OfAlone the two divided.
	P99      float64 `json:"p99_ms"`
	AloneP99 float64 `json:"alone_p99_ms"`
	OfAlone  float64 `json:"of_alone"`
}

const (
	calmTenants, calmJobs = 9, 10
	noisyTenant           = "noisy"
	tenantHandler         = 10 * time.Millisecond
)

func calmTenant(n int) string { return "calm-" + strconv.Itoa(n+1) }

func (b *queueBench) measureTenants(ctx context.Context) (report tenantReport, err error) {
	report = tenantReport{NoisyJobs: b.jobs, Runs: b.runs}
	all := map[string]map[bool][]float64{} // by tenant, beside the noisy one or not
	note := func(tenant string, beside bool, waits []time.Duration) {
		if all[tenant] == nil {
			all[tenant] = map[bool][]float64{}
		}
		all[tenant][beside] = append(all[tenant][beside], p99(waits))
	}
	err = b.withDatabase(ctx, func() error {
		for range b.runs {
			for _, beside := range []bool{false, true} {
				waits, err := b.runTenants(ctx, beside)
				if err != nil {
					return err
				}
				var calm []time.Duration
				for tenant, of := range waits {
					note(tenant, beside, of)
					if tenant != noisyTenant {
						calm = append(calm, of...)
					}
				}
				note("", beside, calm)
			}
		}
		return nil
	})
	if err != nil {
		return report, err
	}
	for n := range calmTenants {
		name := calmTenant(n)
		report.Tenants = append(report.Tenants, tenantRow{name, calmJobs, middle(all[name][true]), middle(all[name][false])})
	}
	report.P99, report.AloneP99 = middle(all[""][true]), middle(all[""][false])
	report.OfAlone = report.P99 / report.AloneP99
	return report, nil
}

// runTenants tells how long each job of the nine waited from its commit until
// its delivery began.
func (b *queueBench) runTenants(ctx context.Context, beside bool) (map[string][]time.Duration, error) {
	store, collection, err := b.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	running, finished := context.WithCancel(ctx)
	defer finished()
	var mu sync.Mutex
	begun := map[string][]time.Time{}
	left := calmTenants * calmJobs
	sink := core.SinkFunc(func(ctx context.Context, l core.Lease) error {
		now := time.Now()
		mu.Lock()
		tenant := l.Event.Tenant
		begun[tenant] = append(begun[tenant], now)
		if tenant != noisyTenant {
			if left--; left == 0 {
				finished()
			}
		}
		mu.Unlock()
		time.Sleep(tenantHandler)
		return nil
	})
	rs, err := b.newRelays(ctx, collection, "stream", shape{1, 5}, sink)
	if err != nil {
		return nil, err
	}
	defer rs.close(ctx)
	if beside {
		if err := b.enqueue(ctx, store, b.jobs, noisyTenant); err != nil {
			return nil, err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- rs.run(running) }()
	time.Sleep(2 * time.Second) // the noisy one is being delivered
	committed := map[string]time.Time{}
	for n := range calmTenants {
		if err := b.enqueue(ctx, store, calmJobs, calmTenant(n)); err != nil {
			return nil, err
		}
		committed[calmTenant(n)] = time.Now()
	}
	if err := <-ended; err != nil {
		return nil, err
	}
	waits := map[string][]time.Duration{}
	for tenant, times := range begun {
		if tenant == noisyTenant {
			continue
		}
		for _, at := range times {
			waits[tenant] = append(waits[tenant], max(0, at.Sub(committed[tenant])))
		}
	}
	return waits, nil
}

func p99(waits []time.Duration) float64 {
	slices.Sort(waits)
	return float64(waits[(len(waits)-1)*99/100]) / float64(time.Millisecond)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (r tenantReport) print() {
	fmt.Printf("nine tenants of %d jobs beside one of %d, handler of %v, medians of %d\n", calmJobs, r.NoisyJobs, tenantHandler, r.Runs)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "tenant\tp99 ms\talone p99 ms\t")
	for _, row := range r.Tenants {
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%.0f\t\n", strings.TrimSpace(row.Tenant), row.P99, row.AloneP99)
	}
	_, _ = fmt.Fprintf(t, "all\t%.0f\t%.0f\t\n", r.P99, r.AloneP99)
	_ = t.Flush()
	fmt.Printf("%.1f times as long as alone\n", r.OfAlone)
}
