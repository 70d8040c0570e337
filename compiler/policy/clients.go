package policy

// ClientCertificate has clients show a certificate of an authority, which was
// asked for when their connection was made for the request's host. A request
// that came by a connection for another host is sent away, to make its own.
type ClientCertificate struct {
	// Required refuses clients that show none.
	Required bool
	// MatchCN is a regular expression of which the common name of the certificate's subject is
	// a whole match; others are refused. "" is any.
	MatchCN string
	// ErrorPage is where clients are redirected to that show none; "" refuses them.
	ErrorPage string
	// Forward is what servers are told of the certificate, in headers. What a
	// client sent under the names of such headers is removed in any case.
	Forward []CertificateField
}

// CertificateField is something that can be told of a client's certificate.
type CertificateField string

// The fields: whether there is a certificate; the names of its subject and of
// its issuer (RFC 4514); its fingerprints, in hexadecimal; all of it.
const (
	FieldVerify CertificateField = "verify"
	FieldDN     CertificateField = "dn"
	FieldIssuer CertificateField = "issuer-dn"
	FieldSHA1   CertificateField = "sha1"
	FieldSHA256 CertificateField = "sha256"
	FieldCert   CertificateField = "cert"
	// Those that ingress-nginx passes on, under its names.
	FieldNginxVerify CertificateField = "ssl-client-verify"
	FieldNginxDN     CertificateField = "ssl-client-subject-dn"
	FieldNginxIssuer CertificateField = "ssl-client-issuer-dn"
	FieldNginxCert   CertificateField = "ssl-client-cert"
)
