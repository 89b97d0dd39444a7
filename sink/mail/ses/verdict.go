package ses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/gooutbox/outbox/core"
)

// unavailable are the codes that are about account and configuration rather than
// one mail, besides those whose status says so.
var unavailable = map[string]bool{
	"AccountSuspendedException": true, "SendingPausedException": true, "NotFoundException": true,
	"UnrecognizedClientException": true, "InvalidClientTokenId": true, "InvalidSignatureException": true, "SignatureDoesNotMatch": true,
	"ExpiredToken": true, "ExpiredTokenException": true, "IncompleteSignature": true, "IncompleteSignatureException": true,
	"MissingAuthenticationToken": true, "MissingAuthenticationTokenException": true, "OptInRequired": true, "RequestExpired": true,
	"NotAuthorized": true, "AccessDenied": true, "AccessDeniedException": true,
}

// judge says what an error means. ctx is the caller's.
func (t *Transport) judge(ctx context.Context, err error, seen *sight) core.Result {
	err = fmt.Errorf("sending by SES: %w", err)
	status := 0
	if answer, ok := errors.AsType[*awshttp.ResponseError](err); ok && answer.Response != nil {
		status = answer.HTTPStatusCode()
	}
	code, message := "", ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	switch {
	case code == "TooManyRequestsException", code == "LimitExceededException", code == "Throttling", code == "ThrottlingException",
		status == http.StatusTooManyRequests:
		after := t.cfg.RetryAfter
		if code == "LimitExceededException" || strings.Contains(strings.ToLower(message), "daily") {
			after = t.cfg.QuotaRetryAfter
		}
		return core.Result{Outcome: core.Throttled, Err: err, RetryAfter: after, Throttles: core.PauseTarget{Scope: core.PauseSink}}
	case unavailable[code], status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusServiceUnavailable:
		return core.Result{Outcome: core.Unavailable, Err: err}
	case status >= 400 && status < 500:
		return core.Result{Outcome: core.Rejected, Err: err}
	case seen.whole:
		return core.Result{Outcome: core.Unknown, Err: err}
	case ctx.Err() != nil:
		return core.Result{Outcome: core.NotAttempted, Err: err}
	}
	return core.Result{Outcome: core.Unavailable, Err: err}
}
