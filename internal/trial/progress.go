package trial

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Display shows a line of progress: on a terminal it is written over again and
// again, elsewhere as a plain line every two seconds. Its methods may be called
// by several goroutines.
type Display struct {
	out      *os.File
	terminal bool

	mu    sync.Mutex
	last  time.Time
	width int
}

// NewDisplay makes a display on a file, such as os.Stdout.
func NewDisplay(out *os.File) *Display {
	return &Display{out: out, terminal: term.IsTerminal(int(out.Fd()))}
}

// Progress shows the line, or leaves it out if the last one is recent.
func (d *Display) Progress(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if !d.terminal {
		if time.Since(d.last) >= 2*time.Second {
			d.last = time.Now()
			_, _ = fmt.Fprintln(d.out, line)
		}
		return
	}
	if columns, _, err := term.GetSize(int(d.out.Fd())); err == nil && columns > 0 && len(line) >= columns {
		line = line[:columns-1] // a line that wraps can't be written over
	}
	pad := max(0, d.width-len(line))
	d.width = len(line)
	_, _ = fmt.Fprint(d.out, "\r"+line+strings.Repeat(" ", pad))
}

// Note shows a line that stays.
func (d *Display) Note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	_, _ = fmt.Fprintf(d.out, format+"\n", args...)
}

// Clear takes the line of progress away.
func (d *Display) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
}

func (d *Display) clear() {
	if d.terminal && d.width > 0 {
		_, _ = fmt.Fprint(d.out, "\r"+strings.Repeat(" ", d.width)+"\r")
		d.width = 0
	}
}
