package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
)

// maxJobsPage bounds a page of Jobs.
const maxJobsPage = 1000

// Job returns one job, see core.Admin.
func (s *Store) Job(ctx context.Context, id string) (core.JobInfo, error) {
	var jobs []*storedJob
	err := s.exists(ctx)
	if err == nil {
		jobs, err = jobsBy(ctx, s.reads, "id = ?", id)
	}
	if err == nil && len(jobs) == 0 {
		err = core.ErrNoJob
	}
	if err != nil {
		return core.JobInfo{}, fmt.Errorf("reading job %s: %w", id, err)
	}
	return jobs[0].info(), nil
}

// Jobs lists jobs page by page, in the order in which they came, see core.Admin.
// A page has 1,000 jobs at most.
func (s *Store) Jobs(ctx context.Context, filter core.JobFilter, after string, limit int) ([]core.JobInfo, string, error) {
	infos, next, err := s.page(ctx, filter, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	return infos, next, nil
}

func (s *Store) page(ctx context.Context, filter core.JobFilter, after string, limit int) ([]core.JobInfo, string, error) {
	condition, args, some := selecting(filter)
	if err := s.exists(ctx); err != nil || !some {
		return nil, "", err
	}
	last := int64(0)
	if after != "" {
		var err error
		if last, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", errors.New("after is not what an earlier page gave as next")
		}
	}
	if limit <= 0 || limit > maxJobsPage {
		limit = maxJobsPage
	}
	jobs, err := jobsBy(ctx, s.reads, condition+" AND seq > ? ORDER BY seq LIMIT ?", append(args, last, limit+1)...)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(jobs) > limit {
		jobs = jobs[:limit]
		next = strconv.FormatInt(jobs[limit-1].seq, 10)
	}
	infos := make([]core.JobInfo, len(jobs))
	for i, j := range jobs {
		infos[i] = j.info()
	}
	return infos, next, nil
}

// selecting is the condition of a filter. The zero filter selects none.
func selecting(f core.JobFilter) (condition string, args []any, some bool) {
	if reflect.ValueOf(f).IsZero() {
		return "", nil, false
	}
	conditions := []string{"1"}
	for _, c := range []struct{ condition, value string }{
		{"state = ?", string(f.State)},
		{"sink = ?", f.Sink},
		{"tenant = ?", f.Tenant},
		{"event_type = ?", f.Type},
		{"aggregate_id = ?", f.Key},
		{"cursor = ?", f.Cursor},
		{"failure_code = ?", f.Code},
	} {
		if c.value != "" {
			conditions, args = append(conditions, c.condition), append(args, c.value)
		}
	}
	if f.State == core.JobFailed || f.State == core.JobUnknown {
		conditions = append(conditions, "state IN ('failed', 'unknown')") // by its index
	}
	if f.IDs != nil {
		ids, _ := json.Marshal(f.IDs) // texts alone
		conditions, args = append(conditions, "id IN (SELECT value FROM json_each(?))"), append(args, string(ids))
	}
	if f.OlderThan != 0 {
		conditions, args = append(conditions, "enqueued_at < "+sqlNow+" - ?"), append(args, f.OlderThan.Milliseconds())
	}
	return "(" + strings.Join(conditions, " AND ") + ")", args, true
}

// describe writes a filter for the record of an act.
func describe(f core.JobFilter) string {
	var parts []string
	for _, field := range []struct{ name, value string }{
		{"ids", strings.Join(f.IDs[:min(3, len(f.IDs))], ",")},
		{"state", string(f.State)},
		{"sink", f.Sink},
		{"tenant", f.Tenant},
		{"type", f.Type},
		{"key", f.Key},
		{"cursor", f.Cursor},
		{"code", f.Code},
	} {
		if field.value != "" {
			parts = append(parts, field.name+"="+field.value)
		}
	}
	if more := len(f.IDs) - 3; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more ids", more))
	}
	if f.OlderThan != 0 {
		parts = append(parts, "older than="+f.OlderThan.Round(time.Second).String())
	}
	if len(parts) == 0 {
		return "all jobs"
	}
	return strings.Join(parts, " ")
}
