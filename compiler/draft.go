package compiler

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// draft makes the draft of a result.
func (c *compilation) draft(r Result) (snapshots.Draft, error) {
	d := snapshots.Draft{
		Files: r.Artifact.Files, Certificates: r.Artifact.Certificates,
		Quarantined: quarantined(r.Diagnostics), Time: c.in.Now,
		Provenance: snapshots.Provenance{
			CompilerVersion: c.in.CompilerVersion, HAProxyVersion: c.in.HAProxyVersion,
			TemplatesDigest: c.in.Templates.Digest(), Inputs: c.in.Objects.Provenance(), Trigger: c.in.Trigger,
		},
	}
	mode := c.in.Config.Certificates.RefMode()
	d.Certificates = versioned(d.Certificates, mode)
	if err := c.carry(&d, mode); err != nil {
		return snapshots.Draft{}, err
	}
	if c.in.Config.Endpoints == config.Recorded {
		file, err := recordEndpoints(r.Artifact, c.in.Objects)
		if err != nil {
			return snapshots.Draft{}, err
		}
		d.Files = append(d.Files[:len(d.Files):len(d.Files)], file)
	}
	return d, nil
}

// carry adds the certificates that go with a draft.
func (c *compilation) carry(d *snapshots.Draft, mode snapshots.CertificateMode) error {
	switch mode {
	case snapshots.ModeSealed:
		return seal(d, c.in.Objects, c.in.Config.Certificates.Recipients, c.in.Seals)
	case snapshots.ModeCompanion:
		return accompany(d, c.in.Objects)
	case snapshots.ModeReference, snapshots.ModeExact:
	}
	return nil
}

// quarantined lists the objects that errors were found on, each with the first
// of its errors.
func quarantined(found []diag.Diagnostic) []snapshots.Quarantined {
	var out []snapshots.Quarantined
	seen := map[diag.Object]bool{{}: true}
	for _, d := range found {
		if d.Severity != diag.Error || seen[d.Object] {
			continue
		}
		seen[d.Object] = true
		out = append(out, snapshots.Quarantined{
			Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name, Reason: d.Message,
		})
	}
	return out
}

// recordEndpoints makes the file of the endpoints of an artifact.
func recordEndpoints(a render.Artifact, in inputs.Inputs) (snapshots.File, error) {
	named, err := endpointsOf(a, in)
	if err != nil {
		return snapshots.File{}, fmt.Errorf("record endpoints: %w", err)
	}
	content, err := snapshots.MarshalEndpoints(named)
	if err != nil {
		return snapshots.File{}, fmt.Errorf("record endpoints: %w", err)
	}
	return snapshots.File{Path: snapshots.EndpointsFile, Content: content}, nil
}

// endpointsOf returns the endpoints that were seen of the Services that the
// artifact has directives for, none included.
func endpointsOf(a render.Artifact, in inputs.Inputs) (map[snapshots.ServicePort][]snapshots.Endpoint, error) {
	directives, err := bind.Directives(snapshots.Snapshot{Files: a.Files}.Config())
	if err != nil {
		return nil, err
	}
	all := live.Endpoints(inputs.Values(in.EndpointSlices))
	named := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for _, d := range directives {
		named[d.Service] = all[d.Service]
	}
	return named, nil
}
