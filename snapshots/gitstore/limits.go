package gitstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// maxPack is how much of a pack is taken from a repository, compressed.
	maxPack = snapshots.MaxSnapshot
	// maxUnpacked is what the objects of a pack may have together: the files of a
	// snapshot, and as much again for what is beside it.
	maxUnpacked = 2 * snapshots.MaxSnapshot
	// maxTree is how large a commit, or a folder, may be.
	maxTree = 8 << 20
)

// errTooLarge is returned for a commit that is larger than a snapshot, or a channel, may
// be. Its hash stands for what it is, so that it is never fetched again.
var errTooLarge = fmt.Errorf("%w: it is too large", snapshots.ErrCorrupt)

// spool writes a pack to a file, which has no name any more, and returns it from the beginning. It
// ends with errTooLarge where the pack, or what is in it, is too large: go-git unpacks
// each object into memory to find out its hash, whatever its size.
func spool(ctx context.Context, pack io.Reader, dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "pack-*")
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) {
		return nil, errors.Join(err, file.Close())
	}
	if err := os.Remove(file.Name()); err != nil {
		return fail(err)
	}
	n, err := io.Copy(file, io.LimitReader(pack, maxPack+1))
	if err == nil && n > maxPack {
		err = fmt.Errorf("%w: its pack has more than %d bytes", errTooLarge, maxPack)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = checkPack(ctx, file)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fail(err)
	}
	return file, nil
}

// checkPack reads what the objects of a pack say of their sizes. That of a delta is in its
// first bytes.
func checkPack(ctx context.Context, pack io.Reader) error {
	scanner := packfile.NewScanner(pack)
	_, objects, err := scanner.Header()
	if err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	var all int64
	for range objects {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := scanner.NextObjectHeader()
		if err != nil {
			return fmt.Errorf("read pack: %w", err)
		}
		size := header.Length
		if size <= snapshots.MaxFile {
			head := &firstBytes{most: 2 * binary.MaxVarintLen64}
			if _, _, err := scanner.NextObject(head); err != nil {
				return fmt.Errorf("read pack: %w", err)
			}
			if header.Type.IsDelta() {
				size = max(size, head.target())
			}
		}
		if size > snapshots.MaxFile {
			return fmt.Errorf("%w: it has a file of %d bytes, and %d are allowed", errTooLarge, size, snapshots.MaxFile)
		}
		if all += size; all > maxUnpacked {
			return fmt.Errorf("%w: it has more than %d bytes", errTooLarge, maxUnpacked)
		}
	}
	return nil
}

// firstBytes keeps the first bytes that are written to it.
type firstBytes struct {
	bytes.Buffer
	most int
}

func (f *firstBytes) Write(p []byte) (int, error) {
	if rest := f.most - f.Len(); rest > 0 {
		f.Buffer.Write(p[:min(rest, len(p))])
	}
	return len(p), nil
}

// target returns the size of what a delta makes, as it says: after the size of what it is
// made of, both as numbers of seven bits to a byte.
func (f *firstBytes) target() int64 {
	if _, err := binary.ReadUvarint(&f.Buffer); err != nil {
		return 0
	}
	size, err := binary.ReadUvarint(&f.Buffer)
	if err != nil || size > snapshots.MaxFile {
		return snapshots.MaxFile + 1
	}
	return int64(size)
}

// checkSize returns an error for an object that is larger than it may be, before it is
// read.
func checkSize(in storer.EncodedObjectStorer, hash plumbing.Hash, most int64) error {
	size, err := in.EncodedObjectSize(hash)
	if err == nil && size > most {
		err = fmt.Errorf("%w: object %s has %d bytes, and may have %d", errTooLarge, hash, size, most)
	}
	return err
}
