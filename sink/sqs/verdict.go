package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/gooutbox/outbox/core"
)

// kind is what a failure concerns, and what is known of what was sent.
type kind uint8

const (
	// ended: the caller's context ended before the request was sent.
	ended kind = iota + 1
	// unreachable: SQS takes nothing from us. Nothing was stored.
	unreachable
	// throttled: SQS asks to send less. Nothing was stored.
	throttled
	// missing: the queue doesn't exist.
	missing
	// denied: we may not use the queue.
	denied
	// faulty: the request is not acceptable. Nothing was stored. Which of its
	// messages is to blame isn't known.
	faulty
	// puzzling: a refusal of the request that this program doesn't know.
	puzzling
	// broken: SQS answered that something failed inside. Messages may have been stored.
	broken
	// silent: the request was sent and nothing that makes sense came back.
	// Messages may have been stored.
	silent
)

// problem is a request that failed.
type problem struct {
	kind  kind
	after time.Duration // with throttled
	err   error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// problemOf finds the problem in an error of ask. It is never nil.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return &problem{kind: silent, err: err}
}

// ask makes one request, bounded by the time-out, and classifies its failure
// into a *problem.
func (s *Sink) ask(ctx context.Context, request func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &problem{kind: ended, err: err}
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	var sent atomic.Bool
	err := request(httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{
		// Until the headers are written nobody can have read a request.
		WroteHeaders: func() { sent.Store(true) },
	}))
	if err == nil {
		return nil
	}
	p := &problem{err: err}
	switch {
	case sent.Load():
		p.kind, p.after = kindOf(err)
	case ctx.Err() != nil:
		p.kind = ended
	default: // no connection, no credentials
		p.kind = unreachable
	}
	if p.kind != ended && bounded.Err() != nil && ctx.Err() == nil {
		p.err = fmt.Errorf("no answer within %v: %w", s.cfg.RequestTimeout, err)
	}
	return p
}

// throttlePause is how long to send nothing where SQS doesn't say for how long.
const throttlePause = time.Second

// unaccepted are codes of credentials, clocks and services that take nothing,
// whichever the queue.
var unaccepted = set("AuthFailure", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidAccessKeyId",
	"InvalidClientTokenId", "InvalidSecurity", "InvalidSignatureException", "MissingAuthenticationToken",
	"MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired", "RequestExpired", "RequestTimeTooSkewed",
	"ServiceUnavailable", "ServiceUnavailableException", "SignatureDoesNotMatch", "UnrecognizedClientException")

// atFault are codes of a request whose content isn't acceptable.
var atFault = set("BatchEntryIdsNotDistinct", "BatchRequestTooLong", "InvalidAttributeValue", "InvalidBatchEntryId",
	"InvalidMessageContents", "InvalidParameterCombination", "InvalidParameterValue", "InvalidParameterValueException",
	"MessageTooLong", "MissingParameter", "MissingRequiredParameterException", "SerializationException",
	"TooManyEntriesInBatchRequest", "ValidationError", "ValidationException")

func set(codes ...string) map[string]bool {
	m := make(map[string]bool, len(codes))
	for _, c := range codes {
		m[c] = true
	}
	return m
}

// kindOf reads the answer to a whole request, if there is one.
func kindOf(err error) (kind, time.Duration) {
	status, wait, code := 0, throttlePause, ""
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		code = plain(answer.ErrorCode())
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.Response != nil && response.Response.Response != nil {
		status = response.HTTPStatusCode()
		if seconds, notNumber := strconv.Atoi(response.Response.Header.Get("Retry-After")); notNumber == nil && seconds > 0 {
			wait = min(time.Duration(seconds)*time.Second, time.Minute)
		}
	}
	switch {
	case isThrottle(code) || status == http.StatusTooManyRequests:
		return throttled, wait
	case code == "NonExistentQueue" || code == "QueueDoesNotExist":
		return missing, 0
	case isDenial(code):
		return denied, 0
	case unaccepted[code] || status == http.StatusServiceUnavailable:
		return unreachable, 0
	case status >= http.StatusInternalServerError:
		return broken, 0
	case atFault[code]:
		return faulty, 0
	case status == http.StatusBadRequest:
		return puzzling, 0
	case status < http.StatusBadRequest:
		return silent, 0
	}
	return unreachable, 0 // what answers there isn't SQS
}

// plain is a code without what the protocols write around it.
func plain(code string) string {
	code, _, _ = strings.Cut(code, ";")
	code = code[strings.LastIndexByte(code, '#')+1:]
	return strings.TrimPrefix(code, "AWS.SimpleQueueService.")
}

func isThrottle(code string) bool {
	_, known := retry.DefaultThrottleErrorCodes[code]
	return known || code == "KmsThrottled" || code == "KMS.ThrottlingException" || code == "OverLimit"
}

// isDenial tells whether rights are missing, also those on the key by which the
// queue encrypts: no message is to blame for it.
func isDenial(code string) bool {
	return code == "AccessDenied" || code == "AccessDeniedException" || code == "InvalidAddress" || code == "UnsupportedOperation" ||
		strings.HasPrefix(code, "Kms") || strings.HasPrefix(code, "KMS.")
}

// result is what a failed request means for each of its events. alone tells
// that it had one only, fixed that there is only one queue.
func (p *problem) result(err error, alone, fixed bool) core.Result {
	r := core.Result{Outcome: core.Unknown, Err: err}
	switch p.kind {
	case ended:
		r.Outcome = core.NotAttempted
	case unreachable:
		r.Outcome = core.Unavailable
	case throttled:
		r.Outcome, r.RetryAfter = core.Throttled, p.after
	case missing, denied:
		r.Outcome = core.Refused
		if fixed {
			r.Outcome = core.Unavailable
		}
	case faulty:
		r.Outcome = core.Refused
		if alone {
			r.Outcome = core.Rejected
		}
	case puzzling:
		r.Outcome = core.Refused
	}
	return r
}

// everywhere tells whether the failure concerns whatever else is to be sent.
func (p *problem) everywhere() bool {
	return p.kind == ended || p.kind == unreachable || p.kind == silent
}

// ofQueue tells whether it concerns whatever goes to the same queue.
func (p *problem) ofQueue() bool {
	return p.kind == missing || p.kind == denied || p.kind == throttled
}
