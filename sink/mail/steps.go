package mail

import (
	"slices"
)

// StepsOf returns the steps of records in the order of their times; of equal
// times those of one mail stay in their order.
func StepsOf(records []Record) []Step {
	var steps []Step
	for _, r := range records {
		for _, s := range r.Steps {
			s.JobID = r.JobID
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.At.Compare(b.At) })
	return steps
}
