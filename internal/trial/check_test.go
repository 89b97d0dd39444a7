package trial

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	committed := []Committed{
		{ID: "a1", Key: "a", Version: 1},
		{ID: "a2", Key: "a", Version: 2},
		{ID: "a3", Key: "a", Version: 3},
		{ID: "b1", Key: "b", Version: 1},
	}
	record := func(id, fence string) Record {
		for _, c := range committed {
			if c.ID == id {
				value, err := json.Marshal(body{Account: c.Key, Version: c.Version})
				require.NoError(t, err)
				return Record{ID: id, Key: c.Key, Fence: fence, Value: value}
			}
		}
		return Record{ID: id, Fence: fence}
	}
	all := []Record{record("a1", "1"), record("a2", "1"), record("b1", "1"), record("a3", "1")}

	for name, test := range map[string]struct {
		records []Record
		want    string
		ok      bool
	}{
		"all is well":  {all, "lost=0 phantom=0 out_of_order=0 duplicates=0 committed=4", true},
		"lost":         {all[:3], "lost=1 phantom=0 out_of_order=0 duplicates=0 committed=4", false},
		"phantom":      {append(all[:4:4], record("x", "1")), "lost=0 phantom=1 out_of_order=0 duplicates=0 committed=4", false},
		"out of order": {[]Record{all[1], all[0], all[2], all[3]}, "lost=0 phantom=0 out_of_order=1 duplicates=0 committed=4", false},
		"repeat": {
			[]Record{all[0], all[1], record("a1", "2"), record("a2", "2"), all[2], all[3]},
			"lost=0 phantom=0 out_of_order=0 duplicates=2 committed=4", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Check(committed, test.records)
			require.Equal(t, test.want, report.Line())
			require.Equal(t, test.ok, report.OK())
			var table strings.Builder
			report.Table(&table)
			require.Equal(t, test.ok, !strings.Contains(table.String(), ": "), table.String())
		})
	}

	t.Run("altered", func(t *testing.T) {
		t.Parallel()
		altered := append(all[:0:0], all...)
		altered[2].Value = altered[0].Value
		require.Equal(t, 1, Check(committed, altered).Altered)
	})
	t.Run("repeats are counted by term", func(t *testing.T) {
		t.Parallel()
		report := Check(committed, append(all[:4:4], record("a1", "1"), record("a1", "2"), record("b1", "2"), record("b1", "3")))
		require.Equal(t, 3, report.Terms)
		require.Equal(t, 2, report.RepeatsInTerm)
		require.Equal(t, 4, report.Duplicates)
	})
}
