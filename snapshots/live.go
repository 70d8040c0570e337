package snapshots

// Live is the live data that a snapshot is bound to: what is true now,
// whatever the age of the snapshot. Endpoints are sorted by address and port,
// without duplicates. Whatever comes from Secrets must not be shown to anybody.
type Live struct {
	Endpoints map[ServicePort][]Endpoint
	// Certificates hold PEM: the chain, then the private key.
	Certificates map[SecretName][]byte
	// Expired are those of the certificates that are not to be served any more.
	Expired map[SecretName]bool
	// Versions are the certificates, as PEM, that references to versions are to, by
	// version; those that are at hand.
	Versions map[string][]byte
	// ExpiredVersions are those of them that are not to be served any more.
	ExpiredVersions map[string]bool
	// Authorities are what [ParseAuthorities] returned.
	Authorities map[SecretName][]byte
	// Users are what [ParseHtpasswd] returned.
	Users map[SecretName][]User
	// Values are what [SecretValue] returned, for words of haproxy.cfg to stand for,
	// see [SecretWord].
	Values map[SecretKey]string
	// Fallback is the PEM of the certificate that is served where no other
	// fits. It belongs to the pusher, not to any Secret.
	Fallback []byte
}
