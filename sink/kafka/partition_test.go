package kafka

import (
	"bufio"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The table was written by the Java client, see its first line.
func TestPartitionsAreThoseOfTheJavaClient(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/murmur2.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, negative := 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		cols := strings.Split(lines.Text(), "\t")
		key, err := hex.DecodeString(cols[0])
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int, len(cols)-1)
		for i := range want {
			if want[i], err = strconv.Atoi(cols[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if got := int32(murmur2(string(key))); got != int32(want[0]) {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want[0])
		}
		if want[0] < 0 {
			negative++
		}
		for i, partitions := range []int{1, 3, 12, 50, 1000} {
			if got := partitionOf(string(key), partitions); got != int32(want[i+1]) {
				t.Errorf("partitionOf(%q, %d) = %d, want %d", key, partitions, got, want[i+1])
			}
		}
		rows++
	}
	if rows < 20 || negative < 5 {
		t.Fatalf("read %d rows, %d of them with a negative hash: the table is cut", rows, negative)
	}
}
