/* Plain C has no launch to predict; its program graph, its IR and its analyses are shown. */
float dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}
