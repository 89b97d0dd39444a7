package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"

	"github.com/gooutbox/outbox/internal/config"
)

// tlsOptions switches TLS on by being there, with the system's roots when it is
// empty.
type tlsOptions struct {
	// CA is a file of PEM certificates that replace the system's roots.
	CA string `yaml:"ca"`
	// Cert and Key are PEM files of the client's certificate.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is the name that the server must show, where it isn't that of
	// the address.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// validate reports what keeps the options from being used. base is their path.
func (o *tlsOptions) validate(base string, report config.Report) {
	o.build(func(field string, err error) { report(base+"."+field, err.Error()) })
}

// config returns the TLS configuration, nil for nil options. The options must
// be valid.
func (o *tlsOptions) config() (*tls.Config, error) {
	var errs []error
	cfg := o.build(func(_ string, err error) { errs = append(errs, err) })
	return cfg, errors.Join(errs...)
}

func (o *tlsOptions) build(problem func(field string, err error)) *tls.Config {
	if o == nil {
		return nil
	}
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         o.ServerName,
		InsecureSkipVerify: o.InsecureSkipVerify, // by the user's word
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		cfg.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			problem("ca", readError(o.CA, err))
		case !cfg.RootCAs.AppendCertsFromPEM(pem):
			problem("ca", errors.New("the file "+o.CA+" holds no PEM certificate"))
		}
	}
	switch {
	case o.Cert == "" && o.Key == "":
	case o.Key == "":
		problem("key", errors.New("is missing: cert needs it"))
	case o.Cert == "":
		problem("cert", errors.New("is missing: key needs it"))
	default:
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			problem("cert", readError(pathErr.Path, err))
		} else if err != nil {
			problem("cert", errors.New("cert and key are no pair of PEM files: "+err.Error()))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

func readError(path string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return errors.New("the file " + path + " can't be read: " + err.Error())
}
