// Package ses sends mails by the SES API, version 2, as raw messages. It is a
// mail.Transport.
//
// A call sends one mail to all its recipients, and is made once: the SDK's
// retries are off. What an answer means for each of them:
//
//	sent, with SES's id as the receipt                      Delivered
//	TooManyRequestsException, LimitExceededException        Throttled, the sink
//	AccountSuspendedException, SendingPausedException,
//	credentials or rights that don't do, no connection      Unavailable
//	503: SES takes no requests                              Unavailable
//	MessageRejected, BadRequestException,
//	MailFromDomainNotVerifiedException and other 4xx        Rejected
//	NotFoundException: the configuration set                Unavailable
//	no answer, and the request was not whole when it ended  Unavailable
//	no answer to a whole request                            Unknown
//	500 and other 5xx                                       Unknown
//
// SendEmail takes no idempotency token, and AWS doesn't say that nothing was
// accepted when it answers 500: such a mail may be on its way.
//
// SES replaces Message-ID by one of its own, which is the receipt.
package ses
