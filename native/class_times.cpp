// Normal beliefs about the errors of predicted times, conditioned on runs that ended and on runs that go on.
#include "class_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace apportion {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kAsSure = 10;       // the sigma of repeated runs that was given counts as so many repeated runs
constexpr double kTrustCells = 10;   // the trust that was given counts as so many cells that have been seen
constexpr double kLeastTrust = 0.05;
constexpr double kTrustSteps = 0.02;  // a smaller change of the trust is not worth working out the beliefs again

// The density of a standard normal variable at a point over its tail beyond; far out by its expansion.
double hazard(double at) {
    if (at > 20) return at + 1 / at;
    return std::exp(-at * at / 2) / (1.2533141373155002512 * std::erfc(at / 1.4142135623730950488));
}

}  // namespace

ClassTimes::ClassTimes(const double* sigma, const double* deviation, double trust, int64_t programs, size_t systems,
                       double repeat_sigma)
    : systems_(systems), repeat_sigma_(repeat_sigma), cells_(programs * systems), as_of_(programs, -1), trust_(trust) {
    double cells = 0;
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
        cells_[cell].variance = cells_[cell].prior = sigma[cell] * sigma[cell];
        cells_[cell].deviation = deviation[cell];
        cells_[cell].least = kNothing;
        if (std::isnan(deviation[cell]) || sigma[cell] <= 0) continue;
        usual_prior_ += cells_[cell].prior;
        spread_ += deviation[cell] * deviation[cell];
        cells += 1;
    }
    if (cells > 0) usual_prior_ /= cells, spread_ *= kTrustCells / cells;
    product_ = (trust - 1) * spread_;
    between_ = usual_prior_ * trust / (1 - trust);
}

double ClassTimes::sigma(int64_t program, size_t system) {
    const Cell& cell = known(program)[system];
    return std::sqrt(cell.variance + (cell.runs > 0 ? repeat_variance() : 0.0));
}

double ClassTimes::repeat_variance() const {
    return (kAsSure * repeat_sigma_ * repeat_sigma_ + squares_) / (kAsSure + freedom_);
}

void ClassTimes::add(int64_t program, size_t system, double error) {
    Cell& cell = cells_[program * systems_ + system];
    const double apart = error - cell.centre;
    ++cell.runs;
    cell.centre += apart / static_cast<double>(cell.runs);
    as_of_[program] = -1;
    if (cell.runs > 1) {
        squares_ += apart * (error - cell.centre);
        freedom_ += 1;
    } else if (trust_ < 1 && cell.prior > 0 && !std::isnan(cell.deviation)) {
        // Where predictions are off at random, those far from what is usual are off the most, and towards it.
        product_ += error * cell.deviation;
        spread_ += cell.deviation * cell.deviation;
        const double trust = std::clamp(1 + product_ / spread_, kLeastTrust, 1 - kLeastTrust);
        if (std::abs(trust - trust_) < kTrustSteps) return;
        trust_ = trust;
        between_ = usual_prior_ * trust / (1 - trust);
        ++version_;
    }
}

void ClassTimes::outlived(int64_t program, size_t system, double error) {
    Cell& cell = cells_[program * systems_ + system];
    if (cell.runs > 0 || error <= cell.least) return;  // a whole run tells more
    cell.least = error;
    as_of_[program] = -1;
}

const ClassTimes::Cell* ClassTimes::known(int64_t program) {
    Cell* row = &cells_[program * systems_];
    if (as_of_[program] == version_) return row;
    as_of_[program] = version_;
    // What predictions and runs say of each system alone.
    for (size_t system = 0; system < systems_; ++system) {
        Cell& cell = row[system];
        cell.mean = 0, cell.variance = cell.prior;
        if (cell.runs == 0 || cell.prior <= 0) continue;  // a prior of 0: it was said to be exact
        const double noise = repeat_variance() / static_cast<double>(cell.runs);
        const double share = cell.prior / (cell.prior + noise);
        cell.mean = share * cell.centre;
        cell.variance = share * noise;
    }
    if (trust_ < 1) {
        // The class as a whole is so much slower than predicted; each system deviates from that and from the usual.
        double weights = 0, whole = 0;
        for (size_t system = 0; system < systems_; ++system) {
            const Cell& cell = row[system];
            if (std::isnan(cell.deviation)) continue;
            const double weight = 1 / (between_ + cell.variance);
            weights += weight;
            whole += weight * (cell.mean + cell.deviation);
        }
        for (size_t system = 0; system < systems_ && weights > 0; ++system) {
            Cell& cell = row[system];
            if (std::isnan(cell.deviation)) continue;
            const double own = between_ / (between_ + cell.variance);
            cell.mean = own * cell.mean + (1 - own) * (whole / weights - cell.deviation);
            cell.variance = own * cell.variance + (1 - own) * (1 - own) / weights;
        }
    }
    for (size_t system = 0; system < systems_; ++system) {
        Cell& cell = row[system];
        if (cell.runs > 0 || cell.least == kNothing) continue;
        if (cell.variance <= 0) {
            cell.mean = std::max(cell.mean, cell.least);
            continue;
        }
        // The normal distribution beyond that bound.
        const double spread = std::sqrt(cell.variance), bound = (cell.least - cell.mean) / spread, rate = hazard(bound);
        cell.mean += spread * rate;
        cell.variance *= std::max(1 - rate * (rate - bound), 1e-3);
    }
    return row;
}

}  // namespace apportion
