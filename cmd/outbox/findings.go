package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// status is how one check ended.
type status string

const (
	statusOK   status = "ok"
	statusWarn status = "warn"
	statusFail status = "fail"
)

// finding is what one check found.
type finding struct {
	// Check says what was looked at, such as "oplog window".
	Check  string `json:"check"`
	Status status `json:"status"`
	// Detail is what was found.
	Detail string `json:"detail"`
	// Advice says what to do, where something is to be done.
	Advice string `json:"advice,omitempty"`
}

// findings gathers what checks found, in their order.
type findings struct {
	list []finding
}

func (f *findings) ok(check, detail string, args ...any) {
	f.list = append(f.list, finding{check, statusOK, fmt.Sprintf(detail, args...), ""})
}

func (f *findings) warn(check, detail, advice string) {
	f.list = append(f.list, finding{check, statusWarn, detail, advice})
}

func (f *findings) fail(check, detail, advice string) {
	f.list = append(f.list, finding{check, statusFail, detail, advice})
}

// failed tells whether a check failed; warnings don't count.
func (f *findings) failed() bool {
	for _, x := range f.list {
		if x.Status == statusFail {
			return true
		}
	}
	return false
}

// table prints a line for each finding, with the advice below.
func (f *findings) table(w io.Writer) error {
	width := 0
	for _, x := range f.list {
		width = max(width, len(x.Check))
	}
	var b strings.Builder
	counts := map[status]int{}
	for _, x := range f.list {
		counts[x.Status]++
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", x.Status, width, x.Check, oneLine(x.Detail))
		if x.Advice != "" {
			fmt.Fprintf(&b, "%*s→ %s\n", width+8, "", oneLine(x.Advice))
		}
	}
	fmt.Fprintf(&b, "%d ok, %d warn, %d fail\n", counts[statusOK], counts[statusWarn], counts[statusFail])
	_, err := io.WriteString(w, b.String())
	return err
}

// json prints one object for scripts.
func (f *findings) json(w io.Writer) error {
	list := f.list
	if list == nil {
		list = []finding{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}{!f.failed(), list})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
