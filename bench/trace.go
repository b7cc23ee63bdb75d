package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// BlockTokens is the number of tokens behind one hash id of a Mooncake trace.
const BlockTokens = 512

// TraceRequest is one line of a Mooncake trace.
type TraceRequest struct {
	At           time.Duration // since the trace's start
	InputTokens  int
	OutputTokens int
	// Blocks are the ids of the prompt's 512-token prefix blocks, the last of
	// which may stand for fewer tokens. Equal ids mean an equal prefix up to
	// and with the block.
	Blocks []uint32
}

// maxTraceLine is far above what a prompt of a million tokens needs.
const maxTraceLine = 1 << 20

// ReadTrace reads a trace: one JSON object a line, with timestamp (ms),
// input_length and output_length (tokens) and hash_ids, ordered by timestamp.
// At most limit requests are read; 0 is all.
func ReadTrace(r io.Reader, limit int) ([]TraceRequest, error) {
	var out []TraceRequest
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxTraceLine)
	for n := 1; s.Scan() && (limit == 0 || len(out) < limit); n++ {
		if len(s.Bytes()) == 0 {
			continue
		}
		req, err := parseTraceLine(s.Bytes())
		if err == nil && len(out) > 0 && req.At < out[len(out)-1].At {
			err = errors.New("timestamp is before the one of the line above")
		}
		if err != nil {
			return nil, fmt.Errorf("trace line %d: %w", n, err)
		}
		out = append(out, req)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("trace: no requests")
	}
	return out, nil
}

func parseTraceLine(line []byte) (TraceRequest, error) {
	var raw struct {
		Timestamp    *float64 `json:"timestamp"`
		InputLength  *int     `json:"input_length"`
		OutputLength int      `json:"output_length"`
		HashIDs      []uint32 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return TraceRequest{}, err
	}
	switch {
	case raw.Timestamp == nil || *raw.Timestamp < 0 || *raw.Timestamp > math.MaxInt64/1e7:
		return TraceRequest{}, errors.New("timestamp is missing or out of range")
	case raw.InputLength == nil || *raw.InputLength <= 0 || raw.OutputLength < 0:
		return TraceRequest{}, errors.New("input_length or output_length is missing or out of range")
	case len(raw.HashIDs) == 0:
		return TraceRequest{}, errors.New("hash_ids is missing or empty")
	}
	if want := (*raw.InputLength-1)/BlockTokens + 1; len(raw.HashIDs) != want {
		return TraceRequest{}, fmt.Errorf("%d hash_ids for %d tokens, must be %d", len(raw.HashIDs), *raw.InputLength, want)
	}
	return TraceRequest{
		At:          time.Duration(*raw.Timestamp * float64(time.Millisecond)),
		InputTokens: *raw.InputLength, OutputTokens: raw.OutputLength, Blocks: raw.HashIDs,
	}, nil
}

// tokensOf is how many of the prompt's tokens its first n blocks hold.
func (r *TraceRequest) tokensOf(n int) int64 {
	return int64(min(n*BlockTokens, r.InputTokens))
}
