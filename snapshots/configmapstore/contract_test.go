package configmapstore

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newBackend)
}

func TestKilled(t *testing.T) {
	t.Parallel()
	storetest.RunKilled(t, newBackend)
}

func TestFailing(t *testing.T) {
	t.Parallel()
	storetest.RunFailing(t, newBackend)
}

func newBackend(t *testing.T) storetest.Backend {
	t.Helper()
	return newPlace(t).backend()
}

func (p *place) backend() storetest.Backend {
	t := p.T
	t.Helper()
	return storetest.Backend{
		Place: p.server.Kubeconfig() + "#" + p.namespace,
		Open: func(step func(string) error) storetest.Store {
			s := p.open()
			if step != nil {
				s.step = step
			}
			return s
		},
		Tamper:     p.tamper,
		SetChannel: p.setChannel,
		RemoveChannel: func() {
			if err := p.client.Delete(p.Context(), p.object(ChannelName("edge"))); err != nil {
				t.Fatal(err)
			}
		},
		Litter: p.litter,
		Break:  func() { p.gone.Store(true) },
	}
}

// litter returns the names of staged manifests, and of chunks without an owner.
func (p *place) litter() []string {
	p.Helper()
	l, err := p.open().list(p.Context(), everything)
	if err != nil {
		p.Fatal(err)
	}
	names := l.orphans()
	for _, s := range l.staged {
		names = append(names, s.name)
	}
	return names
}

// tamper changes the first byte of a file of a snapshot.
func (p *place) tamper(id snapshots.ID, path string) {
	p.Helper()
	manifest := p.object(manifestName("edge", id.Revision))
	if path == snapshots.ManifestFile {
		manifest.Data[manifestKey] = "x" + manifest.Data[manifestKey][1:]
		p.replace(manifest)
		return
	}
	m, err := snapshots.ParseManifest([]byte(manifest.Data[manifestKey]))
	if err != nil {
		p.Fatal(err)
	}
	names := strings.Fields(manifest.Data[chunksKey])
	if len(names) != 1 {
		p.Fatal("there is more than one chunk to tamper with")
	}
	chunk := p.object(names[0])
	files, err := unpackFiles(m, [][]byte{chunk.BinaryData[pieceKey]})
	if err != nil {
		p.Fatal(err)
	}
	for i := range files {
		if files[i].Path == path {
			files[i].Content[0]++
		}
	}
	if chunk.BinaryData[pieceKey], err = new(compressor).tarGz(files); err != nil {
		p.Fatal(err)
	}
	p.replace(chunk)
}

func (p *place) setChannel(data []byte) {
	p.Helper()
	fields := map[string]string{"channel.yaml": string(data)} // this is not a key of a channel
	if c, err := channel.Parse(data); err == nil {
		if fields, err = fieldsOf(c); err != nil {
			p.Fatal(err)
		}
	}
	o := newChannel("edge", fields)
	o.Namespace = p.namespace
	err := p.client.Create(p.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		err = p.client.Update(p.Context(), o)
	}
	if err != nil {
		p.Fatal(err)
	}
}
