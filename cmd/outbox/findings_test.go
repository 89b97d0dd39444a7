package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestFindingsAreATable(t *testing.T) {
	t.Parallel()
	f := &findings{}
	f.ok("MongoDB", "%s answers", "mongodb://h/")
	f.warn("replica set", "standalone:\nno transactions", "start mongod with --replSet")
	if f.failed() {
		t.Error("a warning counts as a failure")
	}
	f.fail("sink events", "dialing: refused", "")
	if !f.failed() {
		t.Error("a failure doesn't count")
	}
	var table, object bytes.Buffer
	if err := f.table(&table); err != nil {
		t.Fatal(err)
	}
	golden(t, "check.txt", table.String())
	if err := f.json(&object); err != nil {
		t.Fatal(err)
	}
	golden(t, "check.json", object.String())
	var read struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}
	if err := json.Unmarshal(object.Bytes(), &read); err != nil || read.OK || len(read.Checks) != 3 || read.Checks[1] != f.list[1] {
		t.Errorf("read back: %v, %+v", err, read)
	}
}
