package configmapstore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/snapshots"
)

// The size of a block that is compressed by itself. A block ends after a line whose checksum says so, so that after a line
// that is inserted, blocks soon end where they did before.
const (
	leastBlock, mostBlock = 64 << 10, 256 << 10
	oneLineIn             = 64 // ends a block that is large enough
)

// compressor compresses to a sequence of members of gzip (RFC 1952, section 2.2), one for each block. It remembers the blocks
// of the last snapshot, most of which the next one has as well: to compress all of a large snapshot takes longer than to
// write it. What comes out depends on the data alone. The zero value is ready to use, by several goroutines.
type compressor struct {
	mu          sync.Mutex
	known, used map[[sha256.Size]byte][]byte // the members of blocks: those of the last snapshot, and those of this one
}

// compress compresses data.
func (c *compressor) compress(data []byte) ([]byte, error) {
	blocks := blocksOf(data)
	members := make([][]byte, len(blocks))
	var jobs errgroup.Group
	jobs.SetLimit(runtime.GOMAXPROCS(0))
	for i, block := range blocks {
		jobs.Go(func() (err error) {
			members[i], err = c.member(block)
			return err
		})
	}
	err := jobs.Wait()
	return bytes.Join(members, nil), err
}

// member compresses a block, unless it is known.
func (c *compressor) member(block []byte) ([]byte, error) {
	digest := sha256.Sum256(block)
	c.mu.Lock()
	member, ok := c.used[digest]
	if !ok {
		member, ok = c.known[digest]
	}
	c.mu.Unlock()
	if !ok {
		var err error
		if member, err = gzipped(block); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used == nil {
		c.used = map[[sha256.Size]byte][]byte{}
	}
	c.used[digest] = member
	return member, nil
}

// gzipped compresses data to one member.
func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// forget forgets all blocks that were not used since the last call.
func (c *compressor) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.used = c.used, nil
}

// blocksOf divides data. There is at least one block.
func blocksOf(data []byte) [][]byte {
	var out [][]byte
	for rest := data; len(rest) > 0 || len(out) == 0; {
		n := blockIn(rest)
		out, rest = append(out, rest[:n]), rest[n:]
	}
	return out
}

// blockIn returns how long the block is with which data begins. It looks at no more than the largest block: a line may be as
// long as all that follows.
func blockIn(data []byte) int {
	data = data[:min(len(data), mostBlock)]
	for end := leastBlock; end < len(data); {
		line := bytes.IndexByte(data[end:], '\n') + 1
		if line == 0 {
			break
		}
		if crc32.ChecksumIEEE(data[end:end+line])%oneLineIn == 0 {
			return end + line
		}
		end += line
	}
	return len(data)
}

// tarGz packs files. What is too large in blocks, of which each begins without the text before it, is compressed as a whole: that
// takes up to a tenth less.
func (c *compressor) tarGz(files []snapshots.File) ([]byte, error) {
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.Path, Mode: 0o644, Size: int64(len(f.Content))}); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	archive, err := c.compress(out.Bytes())
	if err != nil || len(archive) <= maxPieces*maxPiece {
		return archive, err
	}
	return gzipped(out.Bytes())
}
