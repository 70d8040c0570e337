package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLS says who is believed to be the API of an https URL, and what is shown to it.
// All but the name is PEM. Nothing turns the check of the API's certificate off.
type TLS struct {
	// CA holds the authorities that may have signed the API's certificate, those of
	// the system where it is empty. It may be the certificate itself.
	CA string
	// Certificate and Key are shown to an API that asks for a client certificate.
	Certificate, Key string
	// ServerName is expected in the API's certificate, the host of the URL where it
	// is empty.
	ServerName string
}

// Check returns why nothing can be connected to with it.
func (t TLS) Check() error {
	_, err := t.config()
	return err
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("the authorities hold no certificate in PEM")
		}
	}
	if t.Certificate == "" && t.Key == "" {
		return config, nil
	}
	pair, err := tls.X509KeyPair([]byte(t.Certificate), []byte(t.Key))
	if err != nil {
		return nil, fmt.Errorf("the client certificate cannot be used: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
