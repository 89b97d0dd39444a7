package mail

import (
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// attempt is what one attempt at a mail brought.
type attempt struct {
	// fault is why there was none: for good.
	fault error
	// results of recipients that were pending.
	results    map[string]core.Result
	suppressed []string
	why        map[string]*Suppression
}

// recipientStates are the states that outcomes lead to; others leave a recipient
// pending.
var recipientStates = map[core.Outcome]RecipientState{
	core.Delivered: RecipientAccepted, core.Rejected: RecipientRejected, core.Unknown: RecipientUnknown,
}

// retried orders the outcomes after which another attempt follows by which of
// them speaks for the mail.
var retried = []core.Outcome{core.Throttled, core.Unavailable, core.Refused, core.NotAttempted}

// judge says what the mail's record becomes, and what to answer. As long as a
// recipient may still be sent to the mail is tried again; then an unknown outcome
// counts more than a refusal, and that more than what was accepted.
func (a *attempt) judge(all []Recipient) (Finish, core.Result) {
	if a.fault != nil {
		return Finish{State: StateRefused, Recipients: all, Step: Step{Kind: StepRefused, Detail: brief(a.fault)}}, rejected(a.fault)
	}
	f := Finish{Recipients: append([]Recipient(nil), all...)}
	byOutcome := map[core.Outcome]core.Result{}
	for i := range f.Recipients {
		r := &f.Recipients[i]
		result, tried := a.results[r.Address]
		if !tried {
			continue
		}
		if result.Err != nil {
			r.Detail = brief(result.Err)
		} else {
			r.Detail = ""
		}
		if state, ends := recipientStates[result.Outcome]; ends {
			r.State = state
		}
		if result.Outcome == core.Delivered && f.ProviderID == "" {
			f.ProviderID = cut(result.Receipt)
		}
		if known, ok := byOutcome[result.Outcome]; !ok || result.RetryAfter > known.RetryAfter {
			byOutcome[result.Outcome] = result
		}
	}
	for _, address := range a.suppressed {
		for i := range f.Recipients {
			if f.Recipients[i].Address == address {
				f.Recipients[i].State, f.Recipients[i].Detail = RecipientSuppressed, string(a.why[address].Reason)
			}
		}
	}
	n := map[RecipientState]int{}
	detail := map[RecipientState]string{}
	for _, r := range f.Recipients {
		n[r.State]++
		if detail[r.State] == "" {
			detail[r.State] = r.Detail
		}
	}
	result := f.settle(n, detail, byOutcome)
	return f, result
}

// settle fills in state and step.
func (f *Finish) settle(n map[RecipientState]int, detail map[RecipientState]string, byOutcome map[core.Outcome]core.Result) core.Result {
	total := len(f.Recipients)
	switch {
	case n[RecipientPending] > 0:
		f.State = StateQueued
		result := core.Result{Outcome: core.NotAttempted, Err: errors.New("the transport gave no answer")}
		for _, outcome := range retried {
			if one, ok := byOutcome[outcome]; ok {
				result = one
				break
			}
		}
		if result.Err == nil {
			result.Err = fmt.Errorf("the transport answered %v without a reason", result.Outcome)
		}
		f.Step = Step{Kind: StepRetry, Detail: brief(fmt.Errorf("%d of %d recipients wait, %v: %w", n[RecipientPending], total, result.Outcome, result.Err))}
		return result
	case n[RecipientUnknown] > 0:
		f.State = StateUnknown
		err := fmt.Errorf("it isn't known whether the mail was sent to %d of %d recipients: %s", n[RecipientUnknown], total, detail[RecipientUnknown])
		f.Step = Step{Kind: StepUnknown, Detail: brief(err)}
		return core.Result{Outcome: core.Unknown, Err: err}
	case n[RecipientRejected]+n[RecipientSuppressed] > 0:
		f.State = StateRefused
		err := fmt.Errorf("%d of %d recipients are refused for good, %d suppressed: %s",
			n[RecipientRejected], total, n[RecipientSuppressed], firstOf(detail[RecipientRejected], detail[RecipientSuppressed]))
		f.Step = Step{Kind: StepRefused, Detail: brief(err)}
		return rejected(err)
	default:
		f.State = StateSent
		f.Step = Step{Kind: StepSent, Detail: f.ProviderID}
		return core.Result{Outcome: core.Delivered, Receipt: f.ProviderID}
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// brief is an error as a ledger takes it.
func brief(err error) string { return cut(err.Error()) }

func cut(s string) string {
	if len(s) > MaxDetailBytes {
		return s[:MaxDetailBytes-len("…")] + "…"
	}
	return s
}
