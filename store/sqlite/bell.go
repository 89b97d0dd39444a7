package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// bell wakes whoever waits for a change of the database. While somebody waits,
// one goroutine asks on one connection whether another one, of this process or
// not, has committed something: PRAGMA data_version, which reads no page.
type bell struct {
	db    *sql.DB
	every time.Duration
	done  context.Context
	end   context.CancelFunc

	mu      sync.Mutex
	next    chan struct{} // closed when it rings, and replaced
	waiting int
	// someone has a token when waiting is not 0 and the goroutine may not know.
	someone chan struct{}
	polling bool
	over    sync.WaitGroup
}

func newBell(db *sql.DB, every time.Duration) *bell {
	b := &bell{db: db, every: every, next: make(chan struct{}), someone: make(chan struct{}, 1)}
	b.done, b.end = context.WithCancel(context.Background())
	return b
}

// ring wakes all who wait.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.next)
	b.next = make(chan struct{})
}

// heard is closed at the next ring. Take it before looking at the database: what
// is committed after the look rings.
func (b *bell) heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

// listen lets the bell ring for changes until leave is called.
func (b *bell) listen() (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting++
	if !b.polling && b.done.Err() == nil {
		b.polling = true
		b.over.Go(b.poll)
	}
	select {
	case b.someone <- struct{}{}:
	default:
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting--
	}
}

// close ends the goroutine and wakes all.
func (b *bell) close() {
	b.end()
	b.ring()
	b.over.Wait()
}

// awaited tells whether somebody waits.
func (b *bell) awaited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting > 0
}

func (b *bell) poll() {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	var conn *sql.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close() // nothing was written
		}
	}()
	last := int64(-1)
	for b.done.Err() == nil {
		if !b.awaited() {
			select {
			case <-b.someone:
			case <-b.done.Done():
			}
			continue
		}
		version, err := b.version(&conn)
		if err != nil || version != last {
			last = version
			b.ring() // on an error too: whoever waits looks by itself, and sees it
		}
		select {
		case <-tick.C:
		case <-b.done.Done():
		}
	}
}

// version changes with each commit of another connection.
func (b *bell) version(conn **sql.Conn) (version int64, err error) {
	if *conn == nil {
		if *conn, err = b.db.Conn(b.done); err != nil {
			*conn = nil
			return -1, err
		}
	}
	if err = (*conn).QueryRowContext(b.done, "PRAGMA data_version").Scan(&version); err != nil {
		_ = (*conn).Close() // another one is opened
		*conn = nil
		return -1, err
	}
	return version, nil
}
