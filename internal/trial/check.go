package trial

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Report is what Check found.
type Report struct {
	// Committed counts the events of committed transactions, Delivered the
	// different ids among them that arrived.
	Committed, Delivered int
	// Lost were committed and did not arrive; Phantom arrived and were not
	// committed.
	Lost, Phantom int
	// Duplicates counts records beyond the first of an id.
	Duplicates int
	// OutOfOrder counts events that arrived after a later one of their key, or
	// under another key, once repeated ids are dropped.
	OutOfOrder int
	// Altered counts records whose key or value differs from what was committed.
	Altered int
	// Terms counts the different fences; RepeatsInTerm is the largest number of
	// records that one term sent although an earlier term had sent them.
	Terms, RepeatsInTerm int
	// Examples names up to five ids of each kind of fault.
	Examples []string
}

// OK tells that nothing was lost, made up, reordered or altered.
func (r Report) OK() bool {
	return r.Lost == 0 && r.Phantom == 0 && r.OutOfOrder == 0 && r.Altered == 0
}

// Line is the report in one line.
func (r Report) Line() string {
	return fmt.Sprintf("lost=%d phantom=%d out_of_order=%d duplicates=%d committed=%d",
		r.Lost, r.Phantom, r.OutOfOrder, r.Duplicates, r.Committed)
}

// Table writes the report for people.
func (r Report) Table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		name  string
		count int
		means string
	}{
		{"committed", r.Committed, "events of transactions that the database holds"},
		{"delivered", r.Delivered, "of them that Kafka holds"},
		{"lost", r.Lost, "committed, not delivered"},
		{"phantom", r.Phantom, "delivered, not committed"},
		{"duplicates", r.Duplicates, fmt.Sprintf("repeats, at most %d after one take-over", r.RepeatsInTerm)},
		{"out of order", r.OutOfOrder, "within their key, repeats dropped"},
	} {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\n", row.name, row.count, row.means)
	}
	if r.Altered > 0 {
		_, _ = fmt.Fprintf(t, "altered\t%d\tkey or value differs from what was committed\n", r.Altered)
	}
	_ = t.Flush()
	for _, e := range r.Examples {
		_, _ = fmt.Fprintln(w, "  "+e)
	}
}

// Check compares what Kafka holds with what was committed by a Workload.
// Records must be in order within each partition.
func Check(committed []Committed, records []Record) Report {
	ledger := make(map[string]Committed, len(committed))
	for _, c := range committed {
		ledger[c.ID] = c
	}
	report := Report{Committed: len(committed)}
	faults := map[string]int{}
	fault := func(kind string, r string) {
		if faults[kind]++; faults[kind] <= 5 {
			report.Examples = append(report.Examples, kind+": "+r)
		}
	}
	firstFence := make(map[string]string, len(committed)) // by id
	newest := map[string]int64{}                          // by key
	repeats := map[string]int{}                           // by fence
	for _, r := range records {
		if _, seen := repeats[r.Fence]; !seen {
			repeats[r.Fence] = 0
		}
		sent, known := ledger[r.ID]
		if fence, again := firstFence[r.ID]; again {
			report.Duplicates++
			if fence != r.Fence {
				repeats[r.Fence]++
			}
			continue
		}
		firstFence[r.ID] = r.Fence
		if !known {
			report.Phantom++
			fault("phantom", r.ID)
			continue
		}
		report.Delivered++
		if !r.tells(sent) {
			report.Altered++
			fault("altered", r.ID)
		}
		if sent.Version <= newest[sent.Key] {
			report.OutOfOrder++
			fault("out of order", fmt.Sprintf("%s: version %d of %s after version %d (partition %d, offset %d)",
				r.ID, sent.Version, sent.Key, newest[sent.Key], r.Partition, r.Offset))
		}
		newest[sent.Key] = max(newest[sent.Key], sent.Version)
	}
	for _, c := range committed {
		if _, arrived := firstFence[c.ID]; !arrived {
			report.Lost++
			fault("lost", fmt.Sprintf("%s: version %d of %s", c.ID, c.Version, c.Key))
		}
	}
	report.Terms = len(repeats)
	for _, n := range repeats {
		report.RepeatsInTerm = max(report.RepeatsInTerm, n)
	}
	slices.Sort(report.Examples)
	return report
}

// tells says whether the record is the event that was committed.
func (r Record) tells(c Committed) bool {
	var b body
	return json.Unmarshal(r.Value, &b) == nil && r.Key == c.Key && b.Account == c.Key && b.Version == c.Version
}
