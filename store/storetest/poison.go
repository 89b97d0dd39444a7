package storetest

import "github.com/gooutbox/outbox/core"

func poisonRules() []rule {
	var rules []rule
	for _, s := range successions {
		rules = append(rules, rule{name: "FruitlessTermsAreCountedFor" + s.name, check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			for want := range 4 {
				if got := c.Term().Fruitless; got != want {
					k.Errorf("after %d terms without a save: %d fruitless ones", want, got)
				}
				k.read(c, 2)
				c = s.next(k)
			}
		}})
	}
	return append(rules,
		rule{name: "ProgressEndsTheCount", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			for range 3 {
				c = k.takeOver("second")
			}
			k.save(c, k.read(c, 2)[0])
			if got := k.takeOver("third").Term().Fruitless; got != 0 {
				k.Errorf("after a term that saved: %d fruitless ones, want 0", got)
			}
			if got := k.takeOver("fourth").Term().Fruitless; got != 1 {
				k.Errorf("after one more that didn't: %d fruitless ones, want 1", got)
			}
		}},
		rule{name: "RenewalIsNoProgress", check: func(k *kit) {
			c := k.cursor()
			if err := c.Renew(k.ctx); err != nil {
				k.Fatal(err)
			}
			if got := k.takeOver("second").Term().Fruitless; got != 1 {
				k.Errorf("after a term that only renewed: %d fruitless ones, want 1", got)
			}
		}},
		rule{name: "ReleasedTermsAreNotCounted", check: func(k *kit) {
			k.cursor()
			c := k.takeOver("second")
			for range 3 {
				if got := c.Term().Fruitless; got != 1 {
					k.Errorf("%d fruitless terms, want the 1 that wasn't released", got)
				}
				if err := c.Release(k.ctx); err != nil {
					k.Fatal(err)
				}
				c = k.takeOver("third")
			}
		}},
		rule{name: "SuspectIsNoted", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			for want := range 4 {
				term := c.Term()
				if want > 0 && term.SuspectID != "a" || term.SuspectCount != want {
					k.Errorf("after %d terms: suspect %q noted %d times", want, term.SuspectID, term.SuspectCount)
				}
				k.suspect(c, k.read(c, 2)[0])
				c = k.takeOver("second")
			}
		}},
		rule{name: "SuspectIsCountedOnceATerm", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			e := k.read(c, 1)[0]
			k.suspect(c, e)
			k.suspect(c, e)
			if got := k.takeOver("second").Term(); got.SuspectID != "a" || got.SuspectCount != 1 {
				k.Errorf("suspect %q noted %d times, want a once", got.SuspectID, got.SuspectCount)
			}
		}},
		rule{name: "SuspectIsTakenBack", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			for range 3 {
				k.suspect(c, k.read(c, 1)[0])
				if err := c.Suspect(k.ctx, nil); err != nil {
					k.Fatalf("taking the note back: %v", err)
				}
				c = k.takeOver("second")
				if got := c.Term(); got.SuspectID != "" || got.SuspectCount != 0 {
					k.Errorf("suspect %q noted %d times although the note was taken back", got.SuspectID, got.SuspectCount)
				}
			}
		}},
		rule{name: "AnotherSuspectStartsAnew", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			k.suspect(c, k.read(c, 2)[0])
			c = k.takeOver("second")
			entries := k.read(c, 2)
			k.suspect(c, entries[0])
			k.save(c, entries[0])
			k.suspect(c, entries[1])
			if got := k.takeOver("third").Term(); got.SuspectID != "b" || got.SuspectCount != 1 {
				k.Errorf("suspect %q noted %d times, want b once", got.SuspectID, got.SuspectCount)
			}
		}},
	)
}

func (k *kit) suspect(c core.Cursor, e core.Entry) {
	k.Helper()
	if err := c.Suspect(k.ctx, e.Mark); err != nil {
		k.Fatalf("noting %s: %v", e.Event.ID, err)
	}
}
