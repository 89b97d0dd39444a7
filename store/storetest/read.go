package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

func readRules() []rule {
	return []rule{
		{name: "IdleReadReturnsEmpty", check: func(k *kit) {
			c := k.cursor()
			k.idle(c)
			k.append("a")
			k.expect(c, "a")
		}},
		{name: "WaitingReadSeesACommit", check: func(k *kit) {
			c := k.cursor()
			read := make(chan error, 1)
			go func() {
				for {
					b, err := c.Read(k.ctx, core.ReadLimit{})
					if err != nil || len(b.Entries) > 0 {
						read <- err
						return
					}
				}
			}()
			k.append("a")
			if err := <-read; err != nil {
				k.Errorf("reading: %v", err)
			}
		}},
		{name: "EndsWithItsContext", check: func(k *kit) {
			c := k.cursor()
			ctx, cancel := context.WithCancel(k.ctx)
			read := make(chan error, 1)
			go func() {
				for {
					if _, err := c.Read(ctx, core.ReadLimit{}); err != nil {
						read <- err
						return
					}
				}
			}()
			// Gives the Read time to wait; the rule holds also if it doesn't yet.
			<-time.After(k.h.Lease / 10)
			cancel()
			begin := time.Now()
			select {
			case err := <-read:
				if !errors.Is(err, context.Canceled) {
					k.Errorf("Read: %v, want context.Canceled", err)
				}
				if took := time.Since(begin); took > 5*time.Second {
					k.Errorf("Read ended %v after its context", took)
				}
			case <-k.ctx.Done():
				k.Error("Read still waits after its context has ended")
			}
		}},
		{name: "EventLimitIsKept", check: func(k *kit) {
			c := k.cursor()
			k.mixed("e")
			got := 0
			for got < 6 {
				b, err := c.Read(k.ctx, core.ReadLimit{Events: 2})
				if err != nil {
					k.Fatal(err)
				}
				if len(b.Entries) > 2 {
					k.Fatalf("read %d entries at once, want 2 at most", len(b.Entries))
				}
				got += len(b.Entries)
			}
		}},
		{name: "ByteLimitIsKept", check: func(k *kit) {
			c := k.cursor()
			const limit, n = 10_000, 8
			for i := range n {
				e := event(fmt.Sprintf("e-%d", i))
				e.Payload = make([]byte, 3000)
				if i == 4 {
					e.Payload = make([]byte, 2*limit) // fits nowhere, and still comes
				}
				k.commit(e)
			}
			got := 0
			for got < n {
				b, err := c.Read(k.ctx, core.ReadLimit{Bytes: limit})
				if err != nil {
					k.Fatal(err)
				}
				size := 0
				for _, e := range b.Entries {
					size += e.Size
				}
				if size > limit && len(b.Entries) > 1 {
					k.Fatalf("read %d entries of %d bytes, want %d bytes at most", len(b.Entries), size, limit)
				}
				got += len(b.Entries)
			}
		}},
		{name: "ErrorLosesNothing", needs: []need{breaking}, check: func(k *kit) {
			c := k.cursor()
			ids := k.mixed("e")
			k.wantIDs(k.read(c, len(ids)), ids...)
			if err := k.h.BreakRead(k.ctx, k.store); err != nil {
				k.Fatal(err)
			}
			more := k.mixed("f")
			got := k.readUntil(c, k.end(), true)
			k.wantFresh(got, ids, more...)
		}},
		{name: "ErrorBeforeTheFirstEventLosesNothing", needs: []need{breaking}, check: func(k *kit) {
			ids := k.mixed("e")
			c := k.acquire(k.store, core.AcquireRequest{Owner: "first"})
			if err := k.h.BreakRead(k.ctx, k.store); err != nil {
				k.Fatal(err)
			}
			got := k.readUntil(c, k.end(), true)
			k.wantFresh(got, nil, ids...)
		}},
		{name: "WritesGoOnBesideIt", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			e := k.read(c, 1)[0]
			ctx, cancel := context.WithCancel(k.ctx)
			read := make(chan struct{})
			go func() {
				defer close(read)
				for ctx.Err() == nil {
					_, _ = c.Read(ctx, core.ReadLimit{})
				}
			}()
			for _, w := range fencedWrites() {
				if err := w.write(k.ctx, c, e); err != nil {
					k.Errorf("%s beside a Read: %v", w.name, err)
				}
			}
			cancel()
			<-read
		}},
	}
}
